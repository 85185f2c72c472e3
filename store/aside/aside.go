package aside

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Kind is what an item is.
type Kind string

// The kinds of items. Each item has a uuid.
const (
	Slot      Kind = "slot"      // the next slot of a job: the job
	Run       Kind = "run"       // a run that waits
	Outcome   Kind = "outcome"   // the end of a run's attempt: the run
	Workflow  Kind = "workflow"  // what follows in a workflow: its run
	Event     Kind = "event"     // the runs that an event makes: the event
	Operation Kind = "operation" // work on many runs or jobs
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Slot, Run, Outcome, Workflow, Event, Operation} }

// Most is how many items of a kind may be set aside at once. Beyond that nothing is set aside any more: the fault is
// then hardly one of single items, and every batch passes over those that are.
const Most = 1000

// An item is tried again after FirstRetry, then after twice as long each time, but at least every LastRetry.
const (
	FirstRetry = 10 * time.Second
	LastRetry  = 10 * time.Minute
)

// Item is an item that is set aside.
type Item struct {
	Kind   Kind
	ID     uuid.UUID
	Tenant int32
	Job    uuid.UUID // uuid.Nil: it is of no job
}

// Aside is what is set aside. Safe for concurrent use.
type Aside struct {
	db  *pg.DB
	log *slog.Logger

	mu    sync.Mutex
	known map[Kind][]uuid.UUID // sorted
}

// New returns what is set aside in a database.
func New(db *pg.DB, log *slog.Logger) *Aside { return &Aside{db: db, log: log} }

// putAside notes that an item has failed alone, unless too many have. The pause to the next try doubles.
const putAside = `
INSERT INTO punctual.set_aside AS s (kind, item, tenant, job_id, reason, retry_at)
SELECT $1, $2, $3, $4, $5, now() + $6::interval
WHERE (SELECT count(*) FROM (SELECT FROM punctual.set_aside WHERE kind = $1 LIMIT $8) n) < $8
   OR EXISTS (SELECT FROM punctual.set_aside WHERE kind = $1 AND item = $2)
ON CONFLICT (kind, item) DO UPDATE
SET reason = excluded.reason, tries = s.tries + 1, tried_at = now(),
    retry_at = now() + least($6::interval * 2 ^ least(s.tries, 20), $7::interval)
RETURNING tries`

// Put sets an item aside because it fails alone. It reports whether the item is set aside now: it is not if too many
// are, or if the database could not note it. Then whoever has the item tries it again.
func (a *Aside) Put(ctx context.Context, item Item, reason error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	tries, err := pg.One(ctx, a.db.Chores, pgx.RowTo[int], putAside, string(item.Kind), item.ID, item.Tenant,
		pg.OrNull(item.Job), pg.Storable(reason.Error()), FirstRetry, LastRetry, Most)
	if err != nil {
		a.log.Error("an item fails alone, and could not be set aside", "kind", string(item.Kind), "item", item.ID,
			"reason", reason, "error", err)
		return false
	}
	a.learn(item.Kind, append(a.Of(item.Kind), item.ID))
	if tries == 1 {
		a.log.Error("an item fails alone; it is set aside so that all others go on, and tried again by itself",
			"kind", string(item.Kind), "item", item.ID, "job", item.Job, "reason", reason)
	}
	return true
}

// Done forgets items that were done. It costs nothing while nothing is set aside.
func (a *Aside) Done(ctx context.Context, kind Kind, ids ...uuid.UUID) {
	known := a.Of(kind)
	ids = slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		_, is := slices.BinarySearchFunc(known, id, pg.CompareIDs)
		return !is
	})
	if len(ids) == 0 {
		return
	}
	err := pg.Exec(ctx, a.db.Chores, `DELETE FROM punctual.set_aside WHERE kind = $1 AND item = ANY($2::uuid[])`,
		string(kind), ids)
	if err != nil {
		a.log.Warn("items that were set aside are done, but still noted", "kind", string(kind), "error", err)
		return
	}
	a.learn(kind, slices.DeleteFunc(known, func(id uuid.UUID) bool { return slices.Contains(ids, id) }))
	a.log.Info("items that were set aside are done", "kind", string(kind), "count", len(ids))
}

// Of returns the items of a kind that are set aside, sorted: a copy.
func (a *Aside) Of(kind Kind) []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]uuid.UUID{}, a.known[kind]...) // never nil, which would be null in SQL
}

func (a *Aside) learn(kind Kind, ids []uuid.UUID) {
	slices.SortFunc(ids, pg.CompareIDs)
	ids = slices.Compact(ids)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = map[Kind][]uuid.UUID{}
	}
	a.known[kind] = ids
}

// Known is SQL for what is set aside, as one text that Learn takes. Whoever looks for work asks it along, so that
// replicas know within a second what others have set aside. Null: nothing is.
const Known = `(SELECT string_agg(s.kind || ' ' || s.item, ',') FROM punctual.set_aside s)`

// Learn takes what Known returns.
func (a *Aside) Learn(known *string) {
	all := map[Kind][]uuid.UUID{}
	for _, kind := range Kinds() {
		all[kind] = nil
	}
	for _, text := range split(known) {
		if kind, id, is := parse(text); is {
			all[kind] = append(all[kind], id)
		}
	}
	for kind, ids := range all {
		a.learn(kind, ids)
	}
}
