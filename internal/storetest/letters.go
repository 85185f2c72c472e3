package storetest

import (
	"net/netip"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Plan plans a backfill.
func (c Fixture) Plan(r letters.BackfillRequest) letters.BackfillPlan {
	c.T.Helper()
	p, err := c.Letters.PlanBackfill(c.T.Context(), c.Tenant, r)
	Must(c.T, err)
	return p
}

// Backfill starts a backfill.
func (c Fixture) Backfill(r letters.BackfillRequest) letters.Operation {
	c.T.Helper()
	o, err := c.For(c.Tenant).StartBackfill(c.T.Context(), c.Plan(r))
	Must(c.T, err)
	return o
}

// Backfilled counts the runs of a job that a backfill made.
func (c Fixture) Backfilled(job uuid.UUID) int {
	return c.Count(`SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND trigger = 'backfill'`, job)
}

// FinishAll ends runs with success.
func (c Replica) FinishAll(runs []domain.Assignment) {
	c.T.Helper()
	var outcomes []domain.Outcome
	for _, a := range runs {
		outcomes = append(outcomes, Succeeded(a))
	}
	c.Finish(outcomes...)
}

// Die makes n manual runs of a job that die, and returns their ids, oldest first.
func (c Fixture) Die(job string, n int) []uuid.UUID {
	c.T.Helper()
	var dead []uuid.UUID
	for range n {
		c.Trigger(job)
		for _, a := range c.ClaimAll(uuid.New()) {
			c.Finish(a, domain.Bury, domain.ReasonHTTP5xx)
			dead = append(dead, a.RunID)
		}
	}
	if len(dead) != n {
		c.T.Fatalf("%d runs of %s died, want %d", len(dead), job, n)
	}
	return dead
}

// Replay replays a dead letter.
func (c Fixture) Replay(dead uuid.UUID) runs.Run {
	c.T.Helper()
	run, err := c.For(c.Tenant).ReplayDeadLetter(c.T.Context(), dead, "")
	Must(c.T, err)
	return run
}

// DeadLetters lists dead letters by their ids.
func (c Fixture) DeadLetters(f letters.DeadLetterFilter) []uuid.UUID {
	c.T.Helper()
	found, _, err := c.Letters.ListDeadLetters(c.T.Context(), c.Tenant, f)
	Must(c.T, err)
	ids := make([]uuid.UUID, len(found))
	for i, d := range found {
		ids[i] = d.RunID
	}
	slices.SortFunc(ids, pg.CompareIDs)
	return ids
}

// OfTeam selects the jobs that Labelled("team", "x") marks.
var OfTeam = jobs.Filter{Labels: map[string]string{"team": "x"}}

// Alice is who asks for operations in these tests.
var Alice = audit.Actor{
	Kind: audit.Token, Name: "alice", Address: netip.MustParseAddr("203.0.113.7"), RequestID: "r-1",
}

// Changing asks for a change of the jobs that a filter selects.
func Changing(action jobs.Action, f jobs.Filter) letters.JobsRequest {
	return letters.JobsRequest{Change: jobs.Change{Action: action, Filter: f, Note: "why"}}
}

// StartJobs starts an operation on many jobs as Alice.
func (c Fixture) StartJobs(r letters.JobsRequest) letters.Operation {
	c.T.Helper()
	o, err := c.For(c.Tenant).StartJobs(audit.WithActor(c.T.Context(), Alice), r)
	Must(c.T, err)
	return o
}

// Team creates jobs with the label that OfTeam selects.
func (c Fixture) Team(names ...string) {
	c.T.Helper()
	for _, name := range names {
		c.Create(name, Labelled("team", "x"))
	}
}

// Start starts an operation on dead letters.
func (c Fixture) Start(r letters.BulkRequest) letters.Operation {
	c.T.Helper()
	o, err := c.For(c.Tenant).StartOperation(c.T.Context(), r)
	Must(c.T, err)
	return o
}

// Operation reads an operation.
func (c Fixture) Operation(id uuid.UUID) letters.Operation {
	c.T.Helper()
	o, err := c.Letters.GetOperation(c.T.Context(), c.Tenant, id)
	Must(c.T, err)
	return o
}

// Batch does one batch, and reports whether an operation has work left.
func (c Fixture) Batch() bool {
	c.T.Helper()
	_, left, err := c.Letters.Operate(c.T.Context())
	Must(c.T, err)
	return left
}

// Work does batches until no operation has work left.
func (c Fixture) Work() {
	c.T.Helper()
	for c.Batch() {
	}
}

// NextBatch does the next batch without waiting for its time.
func (c Fixture) NextBatch() {
	c.T.Helper()
	c.Exec(`UPDATE punctual.operations SET next_at = now() WHERE state = 'running'`)
	c.Batch()
}

// WantProgress fails the test unless the operation has this state and these counts.
func (c Fixture) WantProgress(id uuid.UUID, state letters.OperationState, matched, done, failed int) letters.Operation {
	c.T.Helper()
	o := c.Operation(id)
	if o.State != state || o.Matched != matched || o.Done != done || o.Failed != failed ||
		(o.FinishedAt != nil) != (state != letters.OperationRunning) {
		c.T.Errorf("operation %+v; want %s, %d matched, %d done, %d failed", o, state, matched, done, failed)
	}
	return o
}
