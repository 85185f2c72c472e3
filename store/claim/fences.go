package claim

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
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

// timeline is the timeline that this Postgres is on, and the one that fencing tokens were last given on.
type timeline struct{ here, known string }

// queue queues the reading of the timeline.
func (t *timeline) queue(b *pgx.Batch) {
	b.Queue(readTimeline).QueryRow(func(row pgx.Row) error { return row.Scan(&t.here, &t.known) })
}

// look forgets what an asynchronous failover may have lost, if the timeline is another one than before. It forgets the
// compiled definitions: lost versions have given their numbers to others. The next heartbeat then has outcomes compared
// with the database, and the sweep begins anew.
func (s *Claims) look(t timeline) {
	if before := s.timeline.Swap(&t.here); before != nil && *before != t.here {
		s.definitions.Forget()
		s.swept.anew()
		s.failedOver.Store(true)
	}
}

// raise raises the sequence if the timeline is new.
func (t timeline) raise(ctx context.Context, q pg.Querier) error {
	if t.here == t.known {
		return nil
	}
	return pg.Wrap("raising the fencing tokens", pg.Exec(ctx, q, raiseFences, t.here, t.known))
}

// guardFences raises the sequence on an unknown timeline. From Register on it runs on every connection. After a
// failover all connections are new, except those behind a pooler, so each heartbeat does the same.
func (s *Claims) guardFences(ctx context.Context, q pg.Querier) error {
	var line timeline
	var b pgx.Batch
	line.queue(&b)
	err := q.SendBatch(ctx, &b).Close()
	if s.hidesTimeline(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the timeline: %w", err)
	}
	s.look(line)
	return line.raise(ctx, q)
}

// hidesTimeline reports whether an error says that this Postgres does not show its timeline, as some hosted ones do
// not. Such a Postgres is not guarded from then on.
func (s *Claims) hidesTimeline(err error) bool {
	var dbErr *pgconn.PgError
	if !errors.As(err, &dbErr) || dbErr.Code != "0A000" && dbErr.Code != "42501" && dbErr.Code != "42883" {
		return false
	}
	s.guarding.Store(false)
	s.options.Log.Warn(
		"this Postgres does not show its timeline: after an asynchronous failover fencing tokens may be used twice",
		"error", err)
	return true
}
