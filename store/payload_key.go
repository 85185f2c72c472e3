package store

import (
	"context"
	"fmt"
	"strconv"

	"punctual/store/claim"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// payloadKey learns with each heartbeat which key payloads are sealed with. Nothing follows from what becomes of runs.
// It implements claim.Follower and claim.Following.
type payloadKey struct {
	claim.Nothing
	secrets *secrets.Secrets
}

// Follow implements claim.Follower.
func (p payloadKey) Follow(context.Context, pg.Querier) (claim.Following, error) { return p, nil }

// FollowWithin implements claim.Follower.
func (p payloadKey) FollowWithin(context.Context, pg.Querier, int32) (claim.Following, error) {
	return p, nil
}

// Facts implements claim.Follower.
func (payloadKey) Facts() string {
	return `SELECT coalesce((` + secrets.LatestPayloadKey + `), 0)`
}

// Learn implements claim.Follower.
func (p payloadKey) Learn(value []byte) error {
	id, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the id of the data key of payloads: %w", err)
	}
	p.secrets.Latest(id)
	return nil
}
