// Package fences guards fencing tokens against failovers, and notices when another Postgres takes the place of the one
// before. It owns no table.
//
// A standby that is promoted begins a new timeline. After an asynchronous failover it may lack the last fencing tokens
// that were given. So the sequence is raised before anything is claimed on a new timeline: by far more than can have
// been given inside any lag. That still leaves room for nine thousand million failovers. With synchronous_commit = off
// a crash loses tokens in the same way, and leaves the timeline as it is: there each start of Postgres counts as one.
//
// Every connection that finds an unknown timeline raises the sequence, even if another connection does so at the same
// moment, or another transaction has locked the row that records the timeline: the sequence has room for raises that
// were not needed.
package fences

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

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

// Guard is what is known of the Postgres behind the connections. Safe for concurrent use.
type Guard struct {
	log      *slog.Logger
	forget   func()                   // is called when this is another Postgres than before
	guarding atomic.Bool              // guard fencing tokens against failovers
	postgres atomic.Pointer[timeline] // what was last found of this Postgres; nil: nothing
	replaced atomic.Bool              // Replaced has not told yet that this is another Postgres than before
}

// New returns a Guard that does nothing before Begin.
func New(db *pg.DB, log *slog.Logger) *Guard {
	g := &Guard{log: log}
	db.Prepare(g.raise)
	return g
}

// OnOther has what was known of the database forgotten whenever it may not be true any more: see Replaced. It comes
// before Begin.
func (g *Guard) OnOther(forget func()) { g.forget = forget }

// Begin guards from now on every new connection. After a failover all connections are new, except those behind a
// pooler, so each heartbeat looks too: see Send.
func (g *Guard) Begin(ctx context.Context, q pg.Querier) error {
	g.guarding.Store(true)
	return g.raise(ctx, q)
}

// raise raises the sequence on an unknown timeline. On a new connection all leases until now count as leases of another
// Postgres, because a crash of one of its processes cuts all connections. A pooler hides that.
func (g *Guard) raise(ctx context.Context, q pg.Querier) error {
	if !g.guarding.Load() {
		return nil
	}
	if err := g.Send(ctx, q, func(*pgx.Batch) {}); err != nil {
		return fmt.Errorf("guarding the fencing tokens: %w", err)
	}
	g.begin()
	return nil
}

// begin makes Started another instant.
func (g *Guard) begin() {
	if t := g.postgres.Load(); t != nil {
		g.postgres.CompareAndSwap(t, new(*t))
	}
}

// Send sends what is queued, and looks at the timeline in the same round trip.
func (g *Guard) Send(ctx context.Context, q pg.Querier, queue func(b *pgx.Batch)) error {
	var b pgx.Batch
	var t timeline
	guarding := g.guarding.Load()
	if guarding {
		b.Queue(readTimeline).QueryRow(pg.IntoPlaces(&t.here, &t.known, &t.started))
	}
	queue(&b)
	err := q.SendBatch(ctx, &b).Close()
	switch {
	case guarding && g.hidesTimeline(err):
		return g.Send(ctx, q, queue)
	case err != nil || !guarding:
		return err
	}
	g.look(t)
	if t.here == t.known {
		return nil
	}
	return pg.Wrap("raising the fencing tokens", pg.Exec(ctx, q, raiseFences, t.here, t.known))
}

// timeline is the timeline that this Postgres is on, the one that fencing tokens were last given on, and when this
// Postgres was started.
type timeline struct {
	here, known string
	started     time.Time
}

// look has what may have been lost forgotten if this is another Postgres than before, or one that was restarted: after
// an asynchronous failover, or after a crash with synchronous_commit = off.
func (g *Guard) look(t timeline) {
	before := g.postgres.Load()
	if before != nil && before.here == t.here && before.started.Equal(t.started) {
		return
	}
	g.postgres.Store(&t)
	if before != nil {
		g.forget()
		g.replaced.Store(true)
	}
}

// Replaced reports whether another Postgres has taken over since it was last asked, or this one was restarted.
func (g *Guard) Replaced() bool { return g.replaced.Swap(false) }

// Started returns when this Postgres was started; nil: not known. The instant is another one, at another address, once
// outcomes that were acknowledged before may be lost.
func (g *Guard) Started() *time.Time {
	if t := g.postgres.Load(); t != nil {
		return &t.started
	}
	return nil
}

// StartedFor returns Started if all leases, each with an outcome among the given ones, were claimed since. Otherwise it
// returns nil.
func (g *Guard) StartedFor(leases []uuid.UUID, outcomes []domain.Outcome) *time.Time {
	started := g.Started()
	for _, id := range leases {
		if !slices.ContainsFunc(outcomes, func(o domain.Outcome) bool {
			return o.Lease.ID == id && o.Lease.Started == started
		}) {
			return nil
		}
	}
	return started
}

// hidesTimeline reports whether an error says that this Postgres does not show its timeline, as some hosted ones do
// not. Such a Postgres is not guarded from then on.
func (g *Guard) hidesTimeline(err error) bool {
	if code := pg.Code(err); code != "0A000" && code != "42501" && code != "42883" {
		return false
	}
	g.guarding.Store(false)
	g.log.Warn("this Postgres does not show its timeline: after an asynchronous failover fencing tokens may be used twice",
		"error", err)
	return true
}
