// Package replicas is the life of a replica: it registers, renews its heartbeat, removes replicas that are lost, and
// reports what it holds back. It owns the tables replicas, replicas_seen, queues, service_periods and holds.
package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/cron"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/fences"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// Options says what heartbeats ask for.
type Options struct {
	Log *slog.Logger

	// ChoresDue is SQL for an array of the names of the chores for which there is work now or within claim.BeatSoon. A
	// heartbeat asks it, so that an idle replica sends no other query for them.
	ChoresDue string
	Chores    []string // their names: all are asked for if that cannot be read

	Learners []Learner
}

// Learner is a room for which every heartbeat reads a value, so that it seldom has to read by itself.
type Learner interface {
	Facts() string // SQL for the value
	Learn(value []byte) error
}

// Replicas is what the loops of a replica need of the database: its life, and its Claims. Safe for concurrent use.
type Replicas struct {
	*claim.Claims
	db          *pg.DB
	freezes     *freeze.Switch
	definitions *definitions.Definitions
	fences      *fences.Guard
	options     Options

	lean      lean                            // what heartbeats do without
	lastPulse atomic.Pointer[scheduler.Pulse] // of the last heartbeat that has read the tenants; nil: none has
}

var _ scheduler.Store = (*Replicas)(nil)

// New returns Replicas that stand on other rooms.
func New(
	db *pg.DB, c *claim.Claims, f *freeze.Switch, d *definitions.Definitions, g *fences.Guard, o Options,
) *Replicas {
	return &Replicas{Claims: c, db: db, freezes: f, definitions: d, fences: g, options: o}
}

const insertReplica = withBack + `,
seen AS (INSERT INTO punctual.replicas_seen (id, host, version) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING)
INSERT INTO punctual.replicas (id, host, version, zone_data, queues, renewed_at)
VALUES ($1, $2, $3, $4, $5::jsonb, ` + renewedAt + `)
ON CONFLICT (id) DO NOTHING`

// Register implements scheduler.Store.
func (s *Replicas) Register(ctx context.Context, r scheduler.Replica) (map[string]int16, error) {
	queues, err := s.EnsureQueues(ctx, slices.Sorted(maps.Keys(r.Queues)))
	if err != nil {
		return nil, err
	}
	if err := s.fences.Begin(ctx, s.db.Runs); err != nil {
		return nil, err
	}
	if r.Queues == nil {
		r.Queues = map[string]int{} // the replica serves the API only
	}
	slots, err := json.Marshal(r.Queues)
	if err != nil {
		return nil, fmt.Errorf("registering replica %s: %w", r.ID, err)
	}
	_, err = s.db.Runs.Exec(ctx, insertReplica, r.ID, r.Host, r.Version, cron.Zones().Release, string(slots))
	return queues, s.db.TookWrite(pg.Wrap(fmt.Sprintf("registering replica %s", r.ID), err))
}

// Deregister implements scheduler.Store.
func (s *Replicas) Deregister(ctx context.Context, replica uuid.UUID) error {
	// Other replicas first recover the outcomes that it could not write: until then its runs count.
	return pg.Wrap(fmt.Sprintf("deregistering replica %s", replica), pg.Exec(ctx, s.db.Runs, `
		WITH gone AS (
			DELETE FROM punctual.allowances
			WHERE replica = $1 AND NOT EXISTS (SELECT FROM punctual.claims WHERE replica = $1))
		DELETE FROM punctual.replicas WHERE id = $1`, replica))
}

var heartbeats = pg.Columns[scheduler.Heartbeat]{
	pg.Col("id", "uuid", func(h scheduler.Heartbeat) uuid.UUID { return h.Replica }),
	pg.Col("beat", "bigint", func(h scheduler.Heartbeat) int64 { return h.Beat }),
}

// Recover implements scheduler.Store. A lost replica that has renewed since stays. So does one whose row another
// transaction has locked: the next heartbeat tries again.
func (s *Replicas) Recover(ctx context.Context, lost []scheduler.Heartbeat) (int, error) {
	if len(lost) > 0 {
		if err := pg.Exec(ctx, s.db.Runs, `
			WITH still AS (
			    SELECT r.id
			    FROM punctual.replicas r
			    JOIN `+heartbeats.Unnest("u")+` ON r.id = u.id AND r.beat = u.beat
			    ORDER BY r.id FOR UPDATE OF r SKIP LOCKED)
			DELETE FROM punctual.replicas r USING still s WHERE r.id = s.id`, heartbeats.Args(lost)...); err != nil {
			return 0, fmt.Errorf("removing lost replicas: %w", err)
		}
	}
	return s.TakeOver(ctx)
}

// NoteReplicas notes that the replicas that there are were seen, about once an hour. So the history names them for as
// long as it has their runs.
func (s *Replicas) NoteReplicas(ctx context.Context) error {
	return pg.Wrap("noting the replicas that there are", pg.Exec(ctx, s.db.Chores, `
		UPDATE punctual.replicas_seen s SET seen_at = now()
		FROM punctual.replicas r
		WHERE r.id = s.id AND s.seen_at < now() - interval '1 hour'`))
}
