package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// What a step is sent besides its own body is the input of its workflow's run, and the results of the steps that it
// depends on. These have ended and do not change any more, so no copy is stored for the step. It is read after the
// claim has committed: once for all steps of a run, and as much as claimGiven. The rest is read when it is sent.
const claimGiven = 4 << 20

// readInputs reads the bodies of workflows' runs ($1), as many as fit into some bytes ($2).
var readInputs = `
SELECT id, CASE WHEN sum(octet_length(body)) OVER (ORDER BY id) <= $2 THEN body END
FROM (SELECT r.id, coalesce(d.body, ` + OfEvent(`body`) + `) AS body
      FROM {runs} r
      LEFT JOIN {run_data} d ON d.run_id = r.id{prune d}
      WHERE r.id = {ids}) i
WHERE body IS NOT NULL`

// readTold reads how steps ($1) have ended, with the smallest of their results, as many as fit into some bytes ($2).
const readTold = `
SELECT id, status, reason, note, bytes, CASE WHEN sum(bytes) OVER (ORDER BY bytes, id) <= $2 THEN result END
FROM (SELECT r.id, r.status, coalesce(r.reason, '') AS reason, coalesce(d.result_note, '') AS note, d.result,
             coalesce(punctual.payload_bytes(d.result), 0) AS bytes
      FROM {runs} r
      LEFT JOIN {run_data} d ON d.run_id = r.id{prune d}
      WHERE r.id = {ids}) t`

// ReadGiven implements scheduler.Store. A step whose input cannot be read, or not opened, is set aside: its replica
// gives it back, and would claim it again at once.
func (s *Claims) ReadGiven(ctx context.Context, a *domain.Assignment) error {
	one := []domain.Assignment{*a}
	err := readGiven(ctx, s.db.Runs, one, days.Common(a.RunID), math.MaxInt64, domain.MaxStepResults)
	a.Given = one[0].Given
	if aside.Blames(ctx, err) || err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.putAside(ctx, aside.Item{Kind: aside.Run, ID: a.RunID, Job: a.Job.ID, Tenant: a.Job.Tenant}, err)
	}
	return err
}

// ReadGiven reads what a step is given for a tenant, who may not read the tables of single days.
func ReadGiven(ctx context.Context, q pg.Batcher, a *domain.Assignment) error {
	one := []domain.Assignment{*a}
	err := readGiven(ctx, q, one, days.AnyDay, math.MaxInt64, domain.MaxStepResults)
	a.Given = one[0].Given
	return err
}

// giveSteps reads what the steps of a claim are given, as much as claimGiven. The rest is read when it is sent, and so
// is what cannot be read now.
func (s *Claims) giveSteps(ctx context.Context, runs []domain.Assignment) {
	ids := pg.Column(runs, func(a domain.Assignment) uuid.UUID { return a.RunID })
	_ = readGiven(ctx, s.db.Runs, runs, days.Common(ids...), claimGiven, claimGiven)
}

// readGiven reads what steps among the runs are given: so many bytes of the inputs of their workflows, and so many of
// the results of other steps. The Given of a step for which that is not enough is left nil.
func readGiven(
	ctx context.Context, q pg.Batcher, runs []domain.Assignment, day days.Day, ofInputs, ofResults int64,
) error {
	found := givens{map[uuid.UUID]input{}, map[uuid.UUID]domain.Told{}}
	for _, a := range runs {
		if !a.TakesGiven() {
			continue
		}
		found.inputs[a.Workflow] = input{}
		for _, on := range a.DependsOn() {
			id := domain.StepRunID(a.Workflow, on)
			found.told[id] = domain.Told{Run: id, Note: "its run is not kept any more"}
		}
	}
	if len(found.inputs) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue(pg.ByIndex)
	workflows := slices.Collect(maps.Keys(found.inputs))
	day.Queue(&b, readInputs, workflows, ofInputs).Query(func(rows pgx.Rows) error {
		return pg.Each2(rows, func(id uuid.UUID, body seal.Bytes) { found.inputs[id] = input{true, body} })
	})
	if before := slices.Collect(maps.Keys(found.told)); len(before) > 0 {
		day.Queue(&b, readTold, before, ofResults).Query(func(rows pgx.Rows) error {
			var t domain.Told
			return pg.Each(rows, []any{&t.Run, &t.Status, &t.Reason, &t.Note, &t.Bytes, (*seal.JSON)(&t.Result)}, func() {
				found.told[t.Run] = t
			})
		})
	}
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading what steps are given: %w", err)
	}
	for i, a := range runs {
		if a.TakesGiven() {
			runs[i].Given = found.of(a)
		}
	}
	return nil
}

// givens are what steps are given, by the runs of their workflows, and of the steps before them.
type givens struct {
	inputs map[uuid.UUID]input
	told   map[uuid.UUID]domain.Told
}

// input is the body of a workflow's run.
type input struct {
	there bool
	body  []byte // nil: it is not read
}

// of returns what a step is given; nil: not all of it is read.
func (f givens) of(a domain.Assignment) *domain.Given {
	in := f.inputs[a.Workflow]
	g := &domain.Given{Input: in.body}
	for _, on := range a.DependsOn() {
		t := f.told[domain.StepRunID(a.Workflow, on)]
		t.Step = on
		g.Steps = append(g.Steps, t)
	}
	if in.there && in.body == nil || !g.Whole() {
		return nil
	}
	return g
}
