package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/audit"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Events reads events, and fans them out. Safe for concurrent use.
type Events struct {
	db      *pg.DB
	days    *days.Days
	aside   *aside.Aside
	options Options
	ended   atomic.Int64 // fan-outs that this process has ended
	trials  trials       // those that have failed
	turns   turns
}

// Options says how events are kept.
type Options struct {
	Log *slog.Logger
	// Kept is how long an event is kept at least: as long as runs that did not succeed.
	Kept time.Duration
}

// New returns the Events of a database.
func New(db *pg.DB, d *days.Days, a *aside.Aside, o Options) *Events {
	return &Events{db: db, days: d, aside: a, options: o}
}

// Emitter emits events of one tenant.
type Emitter struct {
	pg.Writes
	events *Events
}

// Emitter returns an Emitter.
func (s *Events) Emitter(w pg.Writes) Emitter { return Emitter{w, s} }

// Emitted is the answer to an event that was emitted.
type Emitted struct {
	ID         uuid.UUID `json:"id" format:"uuid" doc:"Id of the event: caused_by of its runs." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Name       string    `json:"name" doc:"Its name." example:"invoice.paid"`
	Subscribed int       `json:"subscribed" doc:"How many jobs had subscribed, regardless of their filters. Their runs follow at once." example:"3"`
}

// Emit writes an event, whose name and body the caller has checked. A nil body: it has none. Its runs follow: see
// FanOut. Their traces link to the caller's trace context, as domain.ParseTraceParent returns it; empty: there is none.
func (w Emitter) Emit(
	ctx context.Context, name string, body json.RawMessage, traceParent string,
) (e Emitted, err error) {
	e.Name = name
	err = w.InTx(ctx, func(tx *pg.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT event, subscribed FROM punctual.write_event($1, $2, $3, $4, $5)`,
			w.Tenant, name, seal.Bytes(body), audit.ActorOf(ctx).Words(), pg.OrNull(traceParent)).
			Scan(&e.ID, &e.Subscribed); err != nil {
			return fmt.Errorf("writing event %s: %w", name, err)
		}
		if e.Subscribed > 0 {
			tx.Ask(Chore)
		}
		return nil
	})
	return e, err
}

// WouldEmit is the answer to a dry run of an event.
type WouldEmit struct {
	Runs      []string `json:"runs" doc:"Names of the jobs that would run, up to 1,000." example:"[\"book-payment\"]"`
	Paused    []string `json:"paused" doc:"Names of the jobs that would get a skip, because they are paused, up to 1,000."`
	Made      int      `json:"made" doc:"How many jobs would run." example:"1"`
	Skipped   int      `json:"skipped" doc:"How many jobs are paused." example:"0"`
	Unmatched int      `json:"unmatched" doc:"How many jobs have a filter that the body does not match." example:"2"`
}

// MostNamed is how many jobs a WouldEmit names of each kind.
const MostNamed = 1000

// Try returns what an event would do, and writes nothing.
func (s *Events) Try(ctx context.Context, tenant int32, name string, body json.RawMessage) (WouldEmit, error) {
	rows := pg.Query(ctx, s.db.Callers.Reader(tenant), `
		SELECT j.name, j.state = 'paused' AND coalesce(j.paused_until > now(), true),
		       coalesce(v.definition #>> '{schedule,filter}', '')
		FROM punctual.job_versions v
		JOIN punctual.jobs j ON j.id = v.job_id AND j.version = v.version
		WHERE v.tenant = $1 AND v.event = $2 AND j.tenant = $1 AND j.state <> 'deleted'
		ORDER BY j.name`, tenant, name)
	t := WouldEmit{Runs: []string{}, Paused: []string{}}
	filters := filters{fields: jobspec.FieldsOf(body)}
	err := pg.Each3(rows, func(job string, paused bool, filter string) {
		switch {
		case !filters.match(jobspec.EventFilter(filter)):
			t.Unmatched++
		case paused:
			t.Skipped++
			t.Paused = append(t.Paused, job)[:min(t.Skipped, MostNamed)]
		default:
			t.Made++
			t.Runs = append(t.Runs, job)[:min(t.Made, MostNamed)]
		}
	})
	return t, pg.Wrap("reading the subscribers of event "+name, err)
}

// filters decide about one event. Many subscribers have the same filter.
type filters struct {
	fields jobspec.EventFields
	known  map[jobspec.EventFilter]bool
}

func (f *filters) match(filter jobspec.EventFilter) bool {
	if filter == "" {
		return true
	}
	matches, known := f.known[filter]
	if !known {
		if f.known == nil {
			f.known = map[jobspec.EventFilter]bool{}
		}
		matches = filter.Matcher().Matches(f.fields)
		f.known[filter] = matches
	}
	return matches
}

// Ended returns how many fan-outs this process has ended.
func (s *Events) Ended() int64 { return s.ended.Load() }
