package claim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// A standby that is promoted begins a new timeline. After an asynchronous failover it may lack the last fencing tokens
// that were given. So the sequence is raised before anything is claimed on a new timeline: by far more than can have
// been given inside any lag. That still leaves room for nine thousand million failovers. With synchronous_commit = off
// a crash loses tokens in the same way, and leaves the timeline as it is: there each start of Postgres counts as one.
const (
	readTimeline = `
SELECT CASE WHEN pg_is_in_recovery() THEN timeline
            ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8)
                 || CASE WHEN current_setting('synchronous_commit') = 'off'
                         THEN extract(epoch FROM pg_postmaster_start_time())::text ELSE '' END
            END,
       timeline, pg_postmaster_start_time()
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

// failovers is what is known of the Postgres behind the connections, to notice when another takes its place.
type failovers struct {
	guarding atomic.Bool              // guard fencing tokens against failovers
	postgres atomic.Pointer[timeline] // what was last found of this Postgres; nil: nothing
	replaced atomic.Bool              // no heartbeat has told yet that this is another Postgres than before
}

// timeline is the timeline that this Postgres is on, the one that fencing tokens were last given on, and when this
// Postgres was started.
type timeline struct {
	here, known string
	started     time.Time
}

// queue queues the reading of the timeline.
func (t *timeline) queue(b *pgx.Batch) {
	b.Queue(readTimeline).QueryRow(pg.IntoPlaces(&t.here, &t.known, &t.started))
}

// look forgets what may have been lost if this is another Postgres than before, or one that was restarted: after an
// asynchronous failover, or after a crash with synchronous_commit = off. It forgets the compiled definitions: lost
// versions have given their numbers to others. The sweep begins anew, and the next heartbeat tells the scheduler.
//
// On a new connection all leases until now count as leases of another Postgres, because a crash of one of its processes
// cuts all connections. A pooler hides that.
func (s *Claims) look(t timeline, connected bool) {
	before := s.postgres.Load()
	same := before != nil && before.here == t.here && before.started.Equal(t.started)
	if !same || connected {
		s.postgres.Store(&t)
	}
	if before != nil && !same {
		s.definitions.Forget()
		s.swept.Store(nil)
		s.replaced.Store(true)
	}
}

// started returns when this Postgres was started; nil: not known. The instant is another one, at another address, once
// outcomes that were acknowledged before may be lost.
func (s *Claims) started() *time.Time {
	if t := s.postgres.Load(); t != nil {
		return &t.started
	}
	return nil
}

// startedFor returns started if all leases, each with an outcome among the given ones, were claimed since. Otherwise it
// returns nil.
func (s *Claims) startedFor(leases []uuid.UUID, outcomes []domain.Outcome) *time.Time {
	started := s.started()
	for _, id := range leases {
		if !slices.ContainsFunc(outcomes, func(o domain.Outcome) bool {
			return o.Lease.ID == id && o.Lease.Started == started
		}) {
			return nil
		}
	}
	return started
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
	s.look(line, true)
	return line.raise(ctx, q)
}

// hidesTimeline reports whether an error says that this Postgres does not show its timeline, as some hosted ones do
// not. Such a Postgres is not guarded from then on.
func (s *Claims) hidesTimeline(err error) bool {
	if code := pg.Code(err); code != "0A000" && code != "42501" && code != "42883" {
		return false
	}
	s.guarding.Store(false)
	s.options.Log.Warn(
		"this Postgres does not show its timeline: after an asynchronous failover fencing tokens may be used twice",
		"error", err)
	return true
}
