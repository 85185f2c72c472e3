package replicas

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/store/aside"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// A heartbeat, of which insertReplica is a replica's first, notes first that no replica had renewed for a while (back),
// so that targets could not be heard. If another transaction has locked the row of deployment, no heartbeat waits for
// it. Until the absence is noted, heartbeats write that they renewed long ago, so that no replica counts as back.
const (
	withBack = `
WITH back AS (
    UPDATE punctual.deployment d SET back_at = now()
    FROM (SELECT singleton FROM punctual.deployment WHERE punctual.all_away() FOR NO KEY UPDATE SKIP LOCKED) free
    WHERE d.singleton = free.singleton RETURNING true)`
	renewedAt = `
now() - CASE WHEN punctual.all_away() AND NOT EXISTS (SELECT FROM back) THEN interval '6 s' ELSE interval '0' END`
)

// reading is what a heartbeat reads besides the replica's own.
type reading int

const (
	everything reading = iota
	withoutWork
	withoutTenants
	withoutClaims
)

// renewing returns the statement of a heartbeat. It is assembled from what other rooms ask with it, because one
// statement costs an idle database less than three. Some row of theirs may be one that cannot be read, and a replica
// is not lost for that: without work, the chores find out by themselves whether there is any; without tenants, what was
// read of them last holds; and without claims, the replica looks for none that it does not know, and the recovery finds
// out by itself whether a replica has left any.
func (s *Replicas) renewing(less reading) string {
	work := s.options.ChoresDue + `,
		       ARRAY[` + strings.Join(pg.Column(s.options.Learners, func(l Learner) string {
		return `(` + l.Facts() + `)::text`
	}), `, `) + `]::text[]`
	tenants := `(SELECT coalesce(json_object_agg(id, allowed_targets::text[]), '{}')
		        FROM punctual.tenants WHERE allowed_targets <> '{}' AND deleted_at IS NULL),
		       (SELECT coalesce(json_agg(json_build_object(
		            'Tenant', id, 'Name', name, 'Concurrent', coalesce(max_concurrent_runs, 0),
		            'PerSecond', coalesce(max_runs_per_second, 0), 'Frozen', frozen_at IS NOT NULL) ORDER BY id), '[]')
		        FROM punctual.tenants
		        WHERE max_concurrent_runs IS NOT NULL OR max_runs_per_second IS NOT NULL OR frozen_at IS NOT NULL)`
	if less >= withoutWork {
		work = `'{` + strings.Join(s.options.Chores, ",") + `}'::text[], NULL::text[]`
	}
	if less >= withoutTenants {
		tenants = `NULL::json, NULL::json`
	}
	claims := `(SELECT coalesce(array_agg(id), '{}') FROM punctual.claims WHERE replica = $1)`
	orphans := `EXISTS (SELECT FROM punctual.claims c
		               WHERE NOT EXISTS (SELECT FROM punctual.replicas r WHERE r.id = c.replica))`
	if less >= withoutClaims {
		claims, orphans = `'{}'::uuid[]`, `true`
	}
	return withBack + `,
		renewed AS (
		    UPDATE punctual.replicas
		    SET beat = beat + 1, draining = $2, lacks = nullif($3, ''), renewed_at = ` + renewedAt + `
		    WHERE id = $1 RETURNING id)
		SELECT EXISTS (SELECT FROM renewed),
		       (SELECT coalesce(json_agg(json_build_object('Replica', id, 'Beat', beat) ORDER BY id), '[]')
		        FROM punctual.replicas WHERE id <> $1),
		       ` + claims + `,
		       (SELECT coalesce(array_agg(run_id), '{}') FROM punctual.cancels WHERE replica = $1),
		       ` + orphans + `,
		       ` + work + `,
		       ` + tenants + `,
		       ` + freeze.Columns + `, punctual.is_copy(database_name, system_identifier)
		FROM punctual.deployment`
}

// Renew implements scheduler.Store. It takes one round trip on a connection of its own, so that neither a slow network
// nor a slow claim makes a replica look lost.
func (s *Replicas) Renew(ctx context.Context, replica uuid.UUID, is scheduler.Condition) (scheduler.Pulse, error) {
	last := s.lastPulse.Load()
	for less := s.lean.now(); ; less++ {
		p, err := s.renew(ctx, replica, is, less)
		if less >= withoutTenants && err == nil {
			p.Limits, p.AllowedTargets = last.Limits, last.AllowedTargets
		}
		if !aside.Blames(ctx, err) || less == withoutClaims || less == withoutWork && last == nil {
			return p, err
		}
		s.options.Log.Error("a row that each heartbeat reads cannot be read; the heartbeat leaves it out for a while",
			"error", err)
		s.lean.set(less + 1)
	}
}

// lean is what heartbeats do without for a while, because some row cannot be read. Only heartbeats use it, one at a
// time.
type lean struct {
	less  reading
	until time.Time
}

// withoutFor is how long they do before they try again.
const withoutFor = 30 * time.Second

func (l *lean) now() reading {
	if time.Now().After(l.until) {
		return everything
	}
	return l.less
}

func (l *lean) set(less reading) { l.less, l.until = less, time.Now().Add(withoutFor) }

// renew renews within a second, so that there is time to renew with less. The first heartbeat has more time: it is made
// on a connection that has prepared nothing, on a server that may be cold, and there is no lease to lose yet.
func (s *Replicas) renew(
	ctx context.Context, replica uuid.UUID, is scheduler.Condition, less reading,
) (p scheduler.Pulse, err error) {
	if less < withoutClaims && s.lastPulse.Load() != nil {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ctx = limited
	}
	var frozen freeze.Row
	var copied bool
	var facts []string // for the learners
	err = s.fences.Send(ctx, s.db.Heartbeats, func(b *pgx.Batch) {
		b.Queue(s.renewing(less), replica, is.Draining, is.Lacks).QueryRow(pg.IntoPlaces(append([]any{
			&p.Known, &p.Others, &p.Claims, &p.Cancels, &p.Orphans, &p.Chores, &facts, &p.AllowedTargets, &p.Limits,
		}, append(frozen.Targets(), &copied)...)...))
	})
	if err != nil {
		return p, s.db.TookWrite(fmt.Errorf("renewing replica %s: %w", replica, err))
	}
	p.Replaced, p.Frozen = s.fences.Replaced(), frozen.InForce()
	if less == everything {
		for i, l := range s.options.Learners {
			if err := l.Learn([]byte(facts[i])); err != nil {
				return p, err
			}
		}
	}
	if less < withoutTenants {
		s.lastPulse.Store(new(p))
	}
	if copied && (p.Frozen == nil || s.freezes.Adopts()) {
		p.Frozen, err = s.freezeCopy(ctx)
	}
	return p, err
}

// freezeCopy freezes a database that has replaced the one of a running replica, unless it is adopted. The replica's
// claims have noticed that on their own.
func (s *Replicas) freezeCopy(ctx context.Context) (*scheduler.Freeze, error) {
	s.definitions.Forget()
	if err := s.freezes.Begin(ctx, freeze.Start{Dispatches: true}); err != nil {
		return nil, err
	}
	f, err := freeze.Read(ctx, s.db.Heartbeats, freeze.Deployment)
	return f.Deployment, err
}
