package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/seal"
)

// The statuses of steps that have no run.
const (
	StepWaiting = "waiting" // the workflow goes on, and the step may start yet
	StepNotRun  = "not_run" // the workflow has ended
)

// StepState is how far a step of a workflow's run has come.
type StepState struct {
	Name       string           `json:"name" doc:"Its name." example:"load"`
	DependsOn  []string         `json:"depends_on" doc:"The steps that must have ended before it starts." example:"[\"extract\"]"`
	When       jobspec.LinkWhen `json:"when" enum:"succeeded,ended" doc:"How they must have ended." example:"succeeded"`
	Status     string           `json:"status" enum:"waiting,not_run,pending,running,retrying,succeeded,dead,skipped,cancelled" doc:"The status of its run. It has none yet: waiting; it has none, and the workflow has ended: not_run." example:"running"`
	Run        *uuid.UUID       `json:"run" format:"uuid" nullable:"true" doc:"Its run. Null: it has none." example:"019a3c5f-0000-8f20-b2c4-0a9d6e5f1b73"`
	Reason     *domain.Reason   `json:"reason" nullable:"true" doc:"Why it is not a plain success."`
	Error      *string          `json:"error" doc:"The latest error, for people."`
	Attempt    int              `json:"attempt" doc:"Number of the latest attempt; 0 before the first." example:"1"`
	StartedAt  *time.Time       `json:"started_at" doc:"When the latest attempt was sent."`
	FinishedAt *time.Time       `json:"finished_at" doc:"When it ended."`
	KeptFrom   *uuid.UUID       `json:"kept_from,omitempty" format:"uuid" doc:"Of a step that a rerun has kept: the run whose result it has."`
	SetBy      *string          `json:"set_by,omitempty" doc:"Of a step that a rerun has set: who asked for that." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
	Note       *string          `json:"note,omitempty" doc:"Of a step that a rerun has set: why." example:"INC-12"`
	ResultNote *string          `json:"result_note,omitempty" doc:"Why its result was not kept, so that the steps after it did not get it." example:"the result has 70000 bytes; at most 65536 (64 KiB) are kept"`
	ApproveBy  *time.Time       `json:"approve_by,omitempty" doc:"Of a step that waits for approval: until when."`
	WaitsFor   []string         `json:"waits_for,omitempty" doc:"While it waits: the steps that have to end before." example:"[\"extract\"]"`
}

// Ended reports whether the step has ended, or will not run.
func (s StepState) Ended() bool { return s.Status == StepNotRun || domain.Status(s.Status).Final() }

// ReadSteps completes a run of a job with steps with how far they have come, and with what it waits for. It leaves
// other runs as they are.
func ReadSteps(ctx context.Context, q pg.Querier, run *Run) error {
	var d jobspec.Definition
	var steps []byte
	var most string
	err := q.QueryRow(ctx, `
		SELECT v.definition -> 'steps', coalesce(v.definition ->> 'max_duration', '')
		FROM punctual.job_versions v
		WHERE v.job_id = $1 AND v.version = $2 AND v.definition -> 'steps' IS NOT NULL`, run.JobID, run.JobVersion).
		Scan(&steps, &most)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(steps, &d.Steps)
	}
	if err != nil {
		return fmt.Errorf("reading the job of run %s: %w", run.ID, err)
	}
	_ = d.MaxDuration.UnmarshalText([]byte(most)) // never fails
	return readSteps(ctx, q, run, d.WithDefaults())
}

// waitsForSteps says which steps of a workflow's run go on; nil: none.
func waitsForSteps(run *Run, d jobspec.Definition) *WaitingFor {
	if run.Status != domain.StatusRunning || run.StartedAt == nil {
		return nil
	}
	var left []string
	for _, s := range run.Steps {
		switch {
		case s.Status == StepWaiting && len(s.WaitsFor) > 0:
			left = append(left, s.Name+" waits for "+strings.Join(s.WaitsFor, " and "))
		case s.Status == StepWaiting:
			left = append(left, s.Name+" is about to start")
		case s.ApproveBy != nil:
			left = append(left, fmt.Sprintf("%s waits for approval until %s", s.Name, s.ApproveBy.Format(time.RFC3339)))
		case !s.Ended():
			left = append(left, s.Name+" "+s.Status)
		}
	}
	if left == nil {
		return nil
	}
	return &WaitingFor{
		Kind: domain.WaitSteps, What: "steps: " + strings.Join(left, ", "), Since: *run.StartedAt,
		Until: new(run.StartedAt.Add(d.MaxDuration.Value())),
	}
}

// readSteps is ReadSteps for a run whose definition, with its defaults, is known.
func readSteps(ctx context.Context, q pg.Querier, run *Run, d jobspec.Definition) error {
	states := make([]StepState, len(d.Steps))
	at := map[uuid.UUID]*StepState{}
	named := map[string]*StepState{}
	ids := make([]uuid.UUID, len(d.Steps))
	for i, step := range d.Steps {
		s := &states[i]
		*s = StepState{Name: step.Name, DependsOn: step.DependsOn, When: step.When, Status: StepWaiting}
		if s.When == "" {
			s.When = jobspec.WhenSucceeded
		}
		if s.DependsOn == nil {
			s.DependsOn = []string{}
		}
		if run.Status.Final() {
			s.Status = StepNotRun
		}
		ids[i] = domain.StepRunID(run.ID, step.Name)
		at[ids[i]], named[step.Name] = s, s
	}
	rows := pg.Query(ctx, q, `
		SELECT r.id, r.status, r.reason, r.error, r.attempt, r.started_at, r.finished_at, r.rerun_of, r.triggered_by, d.note,
		       d.result_note, y.due_at
		FROM punctual.runs r
		LEFT JOIN punctual.ready y ON y.run_id = r.id AND y.waits = 'person'
		LEFT JOIN punctual.run_data d ON d.run_id = r.id AND d.run_id = ANY($1::uuid[])
		WHERE r.id = ANY($1::uuid[])`, ids)
	var id uuid.UUID
	var r StepState
	err := pg.Each(rows, []any{
		&id, &r.Status, &r.Reason, seal.OrNull(&r.Error), &r.Attempt, &r.StartedAt, &r.FinishedAt, &r.KeptFrom, &r.SetBy,
		&r.Note, &r.ResultNote, &r.ApproveBy,
	}, func() {
		s := at[id]
		r.Name, r.DependsOn, r.When, r.Run = s.Name, s.DependsOn, s.When, new(id)
		*s = r
	})
	run.Steps = states
	for i := range states {
		for _, on := range states[i].DependsOn {
			if states[i].Status == StepWaiting && !named[on].Ended() {
				states[i].WaitsFor = append(states[i].WaitsFor, on)
			}
		}
	}
	run.WaitingFor = waitsForSteps(run, d)
	if w := run.WaitingFor; w != nil && run.Reason != nil && *run.Reason == domain.ReasonTimeout && err == nil {
		w.What += "; max_duration has passed, and only steps with when: ended still run"
		until := pg.Query(ctx, q, `SELECT due_at FROM punctual.ready WHERE run_id = $1`, run.ID)
		err = pg.Each(until, []any{w.Until}, func() {})
	}
	return pg.Wrap("reading the steps of run "+run.ID.String(), err)
}
