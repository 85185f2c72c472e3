package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"punctual/store/pg"
)

// A standby that is promoted begins a new timeline. After an asynchronous failover it may lack the last fencing tokens
// that were given. So the sequence is raised before anything is claimed on a new timeline: by far more than can have
// been given inside any lag. That still leaves room for nine thousand million failovers.
const (
	readTimeline = `
SELECT CASE WHEN pg_is_in_recovery() THEN timeline
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
       timeline
FROM punctual.deployment`
	raiseFences = `
WITH was AS (
    SELECT singleton FROM punctual.deployment WHERE timeline <> $1 FOR NO KEY UPDATE SKIP LOCKED),
noted AS (
    UPDATE punctual.deployment d SET timeline = $1
    FROM was
    WHERE d.singleton = was.singleton)
SELECT setval('punctual.fences', nextval('punctual.fences') + 1000000000) WHERE $2 <> ''`
)

// Every connection that finds an unknown timeline raises the sequence, even if another connection does so at the same
// moment, or another transaction has locked the row that records the timeline: the sequence has room for raises that
// were not needed.

// guardFences raises the sequence on an unknown timeline. From Register on it runs on every connection. After a
// failover all connections are new, except those behind a pooler, so each heartbeat runs it as well. A Postgres that
// does not tell its timeline, such as some hosted ones, is not guarded.
func (s *Store) guardFences(ctx context.Context, q pg.Querier) error {
	var here, known string
	err := q.QueryRow(ctx, readTimeline).Scan(&here, &known)
	var dbErr *pgconn.PgError
	if errors.As(err, &dbErr) && (dbErr.Code == "0A000" || dbErr.Code == "42501" || dbErr.Code == "42883") {
		s.guarding.Store(false)
		s.options.Log.Warn(
			"this Postgres does not show its timeline: after an asynchronous failover fencing tokens may be used twice",
			"error", err)
		return nil
	}
	if err == nil && here != known {
		err = pg.Exec(ctx, q, raiseFences, here, known)
	}
	if err != nil {
		return fmt.Errorf("guarding the fencing tokens: %w", err)
	}
	return nil
}
