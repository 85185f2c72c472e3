package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// verifyStarts reads, for each limit with a rate, between which instants each of its runs was first let in: not before
// it was due, and not after its first request. Those that were due before the limit was last changed are left out.
const verifyStarts = `
	SELECT t.name, l.name, l.max_starts_per_second, r.id, greatest(r.created_at, r.due_at) AS due,
	       least(r.started_at, CASE WHEN r.attempt > 1 THEN (
	           SELECT min(a.started_at) FROM punctual.attempts a
	           WHERE a.run_id = r.id AND a.run_id >= $4) END) AS sent` + limitedRuns + `
	  AND l.max_starts_per_second IS NOT NULL
	  AND r.started_at BETWEEN $2 AND $3 AND greatest(r.created_at, r.due_at) > greatest(l.updated_at + $5::interval, $2)
	ORDER BY l.tenant, l.name, due`

// starts looks for limits that let more runs start than their rate allows. When a run was let in is not recorded, only
// between which instants that was. So it finds a limit at fault if no order of starts fits all of them.
func (v *verification) starts(ctx context.Context, tx pgx.Tx) error {
	if v.options.Job != "" {
		return nil
	}
	rows := pg.Query(ctx, tx, verifyStarts, v.tenant, v.summary.From, v.summary.To, v.firstID(), v.options.Grace)
	var tenant, name string
	var perSecond int
	var run uuid.UUID
	var due, sent time.Time
	var rate *startRate
	_, err := pgx.ForEachRow(rows, []any{&tenant, &name, &perSecond, &run, &due, &sent}, func() error {
		if rate == nil || rate.tenant != tenant || rate.name != name {
			rate.end(v)
			rate = &startRate{tenant: tenant, name: name, perSecond: perSecond}
		}
		rate.serve(due)
		apart, together := domain.StartPace(perSecond)
		rate.add(letIn{run, sent.Add(time.Duration(together) * apart), apart})
		return v.failed
	})
	if err == nil {
		rate.end(v)
	}
	return pg.Wrap("reading the starts at limits", err)
}

// letIn is a run that has to be let in before an instant. That takes its part of a second.
type letIn struct {
	run    uuid.UUID
	before time.Time
	takes  time.Duration
}

// startRate lets the runs of a limit in, those first that were sent first. If that is too late for one of them, any
// other order is too late for one.
type startRate struct {
	tenant, name string
	perSecond    int
	at           time.Time
	waiting      []letIn    // in that order
	late         *uuid.UUID // the first that was sent before it could be let in
}

func (r *startRate) add(run letIn) {
	i, _ := slices.BinarySearchFunc(r.waiting, run, func(a, b letIn) int { return a.before.Compare(b.before) })
	r.waiting = slices.Insert(r.waiting, i, run)
}

// serve lets runs in until an instant.
func (r *startRate) serve(until time.Time) {
	for len(r.waiting) > 0 && r.at.Before(until) {
		first := &r.waiting[0]
		took := min(first.takes, until.Sub(r.at))
		r.at, first.takes = r.at.Add(took), first.takes-took
		if first.takes > 0 {
			return
		}
		if r.at.After(first.before) && r.late == nil {
			r.late = new(first.run)
		}
		r.waiting = r.waiting[1:]
	}
	r.at = jobspec.Later(r.at, until)
}

// end reports the limit if its runs started too fast.
func (r *startRate) end(v *verification) {
	if r == nil {
		return
	}
	r.serve(r.at.Add(time.Duration(len(r.waiting)+1) * time.Second))
	if r.late != nil {
		v.report(Violation{Kind: ViolationLimit, Tenant: r.tenant, Runs: []uuid.UUID{*r.late}, Detail: fmt.Sprintf(
			"limit %q allows %d starts a second, and more have started by the time of this run", r.name, r.perSecond)})
	}
}
