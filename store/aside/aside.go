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

// The kinds of items, and what the id of each is the id of.
const (
	Slot      Kind = "slot"      // the next slot of a job: the job
	Run       Kind = "run"       // a run that waits
	Outcome   Kind = "outcome"   // the end of a run's attempt: the run
	Workflow  Kind = "workflow"  // what follows in a workflow: its run
	Event     Kind = "event"     // the runs that an event makes: the event
	Operation Kind = "operation" // work on many runs or jobs: the operation
	Pause     Kind = "pause"     // the end of a pause: the job
	Dated     Kind = "dated"     // dated runs that no longer fit their job: the job
	Notice    Kind = "notice"    // what is to be told of a job: the job
	Recipient Kind = "recipient" // the messages to a recipient: its row in the outbox
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Slot, Run, Outcome, Workflow, Event, Operation, Pause, Dated, Notice, Recipient}
}

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

	mu      sync.Mutex
	known   map[Kind][]uuid.UUID // sorted
	resting map[Kind][]uuid.UUID // those of them that are not to be tried yet
}

// New returns what is set aside in a database.
func New(db *pg.DB, log *slog.Logger) *Aside {
	return &Aside{db: db, log: log, known: map[Kind][]uuid.UUID{}, resting: map[Kind][]uuid.UUID{}}
}

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
	a.mu.Lock()
	a.learn(item.Kind, append(slices.Clone(a.known[item.Kind]), item.ID),
		append(slices.Clone(a.resting[item.Kind]), item.ID))
	a.mu.Unlock()
	if tries == 1 {
		a.log.Error("an item fails alone; it is set aside, keeps nothing else waiting, and is tried again by itself",
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
	done := func(id uuid.UUID) bool { return slices.Contains(ids, id) }
	a.mu.Lock()
	a.learn(kind, slices.DeleteFunc(known, done), slices.DeleteFunc(slices.Clone(a.resting[kind]), done))
	a.mu.Unlock()
	a.log.Info("items that were set aside are done", "kind", string(kind), "count", len(ids))
}

// Of returns the items of a kind that are set aside, sorted: a copy.
func (a *Aside) Of(kind Kind) []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]uuid.UUID{}, a.known[kind]...) // never nil, which would be null in SQL
}

// Resting returns the items of a kind that are not to be tried yet. Chores pass over them, and then try them again
// together with all others.
func (a *Aside) Resting(kind Kind) []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]uuid.UUID{}, a.resting[kind]...)
}

// learn replaces what is known of a kind. The caller has locked a.
func (a *Aside) learn(kind Kind, known, resting []uuid.UUID) {
	slices.SortFunc(known, pg.CompareIDs)
	a.known[kind], a.resting[kind] = slices.Compact(known), resting
}

// Known is SQL for what is set aside, as one text that Learn takes. Whoever looks for work asks it along, so that
// replicas know within a second what others have set aside. Null: nothing is.
const Known = `(SELECT string_agg(concat_ws(' ', s.kind, s.item, CASE WHEN s.retry_at > now() THEN 'rests' END), ',')
     FROM punctual.set_aside s)`

// Learn takes what Known returns.
func (a *Aside) Learn(text *string) {
	known, resting := map[Kind][]uuid.UUID{}, map[Kind][]uuid.UUID{}
	for _, one := range split(text) {
		kind, id, rests := parse(one)
		known[kind] = append(known[kind], id)
		if rests {
			resting[kind] = append(resting[kind], id)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, kind := range Kinds() {
		a.learn(kind, known[kind], resting[kind])
	}
}

// Each has work done on items of a kind, each identified by the id of its job or of something else, and sets aside
// those that fail alone. With an error the work on some was not done: see Apart.
func (a *Aside) Each(
	ctx context.Context, kind Kind, ids []uuid.UUID, work func(ctx context.Context, ids []uuid.UUID) error,
) error {
	failed, err := Apart(ctx, ids, func(ctx context.Context, some []uuid.UUID) error {
		return within(ctx, Whole, some, work)
	})
	if err != nil {
		return err
	}
	for _, f := range failed {
		a.Put(ctx, a.Whose(ctx, Item{Kind: kind, ID: f.Item}), f.Err)
	}
	a.Done(ctx, kind, slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		return slices.ContainsFunc(failed, func(f Failed[uuid.UUID]) bool { return f.Item == id })
	})...)
	return nil
}

// One ends work on one item, of which left says whether there is more. If the work has failed by the item's fault, the
// item is set aside: then there may be more, and it is no error.
func (a *Aside) One(ctx context.Context, kind Kind, id uuid.UUID, left bool, err error) (bool, error) {
	switch {
	case err == nil && id != uuid.Nil:
		a.Done(ctx, kind, id)
		return left, nil
	case id != uuid.Nil && Blames(ctx, err) && a.Put(ctx, a.Whose(ctx, Item{Kind: kind, ID: id}), err):
		return true, nil
	}
	return left, err
}

// jobs are the kinds whose items are jobs.
var jobs = []Kind{Slot, Pause, Dated, Notice}

// ofTenants are the kinds whose items are of a tenant, and of no job, each with what names it.
var ofTenants = map[Kind]string{
	Event: `punctual.events`, Operation: `punctual.operations`,
	Recipient: `punctual.outbox`,
}

// Whose adds whose an item is, if that can be read.
func (a *Aside) Whose(ctx context.Context, item Item) Item {
	read := `SELECT tenant, job_id FROM punctual.runs_of(ARRAY[$1::uuid])`
	switch {
	case slices.Contains(jobs, item.Kind):
		read = `SELECT tenant, id FROM punctual.jobs WHERE id = $1`
	case ofTenants[item.Kind] != "":
		read = `SELECT tenant, NULL::uuid FROM ` + ofTenants[item.Kind] + ` WHERE id = $1`
	}
	ctx, cancel := context.WithTimeout(ctx, Part)
	defer cancel()
	_ = a.db.Chores.QueryRow(ctx, read, item.ID).Scan(&item.Tenant, &item.Job) // what cannot be read stays unknown
	return item
}

// PutRun sets something aside of a run of which nothing but its id is known.
func (a *Aside) PutRun(ctx context.Context, kind Kind, run uuid.UUID, reason error) bool {
	return a.Put(ctx, a.Whose(ctx, Item{Kind: kind, ID: run}), reason)
}
