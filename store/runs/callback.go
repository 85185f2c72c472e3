package runs

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"punctual/store/claim"
	"punctual/store/pg"
)

// SupersededError means that a target called about an attempt that is over.
type SupersededError = claim.SupersededError

// CompleteRun ends a run for its target, which works on after its answer: see claim.Claims.CompleteCalled.
func (s *Runs) CompleteRun(
	ctx context.Context, run uuid.UUID, token string, result json.RawMessage,
) (ended Run, err error) {
	err = s.claims.CompleteCalled(ctx, run, token, result, into(ctx, &ended, run))
	return ended, err
}

// FailRun ends an attempt as failed for its target, which works on after its answer: see claim.Claims.FailCalled.
func (s *Runs) FailRun(
	ctx context.Context, run uuid.UUID, token, message string, retry bool,
) (ended Run, err error) {
	err = s.claims.FailCalled(ctx, run, token, message, retry, into(ctx, &ended, run))
	return ended, err
}

// into reads a run within a transaction.
func into(ctx context.Context, read *Run, run uuid.UUID) func(*pg.Tx, int32) error {
	return func(tx *pg.Tx, tenant int32) (err error) {
		*read, err = Read(ctx, tx, tenant, run)
		return err
	}
}
