package history

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// workflowPage is how many workflows Verify looks at at a time.
const workflowPage = 200

// The runs of jobs with steps, after an id ($4), that have begun. One is idle when nothing was to be decided about it
// for the grace ($5), or when it has ended that long ago.
const verifyWorkflows = `
SELECT t.name, j.name, r.job_id, r.id, r.scheduled_for, r.status, coalesce(r.reason, ''), v.definition ->> 'steps',
       w.run_id IS NOT NULL OR r.finished_at IS NOT NULL,
       coalesce(r.finished_at, w.looked_at, r.accepted_at) < (SELECT ` + pg.Now + `) - $5::interval
FROM punctual.job_versions v
JOIN punctual.runs r ON r.job_id = v.job_id AND r.job_version = v.version
JOIN punctual.jobs j ON j.id = r.job_id
JOIN punctual.tenants t ON t.id = r.tenant
LEFT JOIN punctual.workflows w ON w.run_id = r.id
WHERE v.definition ->> 'steps' IS NOT NULL AND r.step IS NULL AND r.accepted_at IS NOT NULL
  AND r.id >= $3 AND r.scheduled_for BETWEEN $1 AND $2 AND r.id > $4
  AND ($6 = 0 OR r.tenant = $6) AND ($7::uuid IS NULL OR r.job_id = $7) AND ($8 = '' OR j.name = $8)
ORDER BY r.id LIMIT $9`

// verifiedWorkflow is the run of a workflow, with those of its steps.
type verifiedWorkflow struct {
	Violation
	id          uuid.UUID
	status      domain.Status
	reason      domain.Reason
	steps       string
	known, idle bool
	definition  jobspec.Definition
	runs        map[string]domain.StepRun
	began       map[string]time.Time // when the runs of steps were made that were claimed
}

// workflows looks for steps that should have started, and for workflows that should have ended.
func (v *verification) workflows(ctx context.Context, tx pgx.Tx) error {
	var after uuid.UUID
	for {
		rows := pg.Query(ctx, tx, verifyWorkflows, v.summary.From, v.summary.To, v.firstID(), after, v.options.Grace,
			v.tenant, pg.OrNull(v.only), v.name, workflowPage)
		page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*verifiedWorkflow, error) {
			w := &verifiedWorkflow{runs: map[string]domain.StepRun{}, began: map[string]time.Time{}}
			err := row.Scan(&w.Tenant, &w.Job, &w.JobID, &w.id, &w.Slot, &w.status, &w.reason, &w.steps, &w.known, &w.idle)
			if err == nil {
				err = json.Unmarshal([]byte(w.steps), &w.definition.Steps)
			}
			return w, err
		})
		if err != nil {
			return fmt.Errorf("reading workflows: %w", err)
		}
		if err := readVerifiedSteps(ctx, tx, page); err != nil {
			return err
		}
		for _, w := range page {
			after = w.id
			if detail := cmp.Or(w.wrong(), w.disorder()); detail != "" {
				w.Kind, w.Runs, w.Detail = ViolationWorkflow, []uuid.UUID{w.id}, detail
				v.report(w.Violation)
			}
		}
		if len(page) < workflowPage || v.failed != nil {
			return v.failed
		}
	}
}

func readVerifiedSteps(ctx context.Context, tx pgx.Tx, page []*verifiedWorkflow) error {
	type place struct {
		of   *verifiedWorkflow
		step string
	}
	places := map[uuid.UUID]place{}
	var ids []uuid.UUID
	for _, w := range page {
		for _, s := range w.definition.Steps {
			id := domain.StepRunID(w.id, s.Name)
			ids, places[id] = append(ids, id), place{w, s.Name}
		}
	}
	var r domain.StepRun
	var finished, began *time.Time
	rows := pg.Query(ctx, tx, `
		SELECT r.id, r.status, coalesce(r.reason, ''), r.finished_at,
		       CASE WHEN r.claimed_at IS NOT NULL THEN least(r.created_at, r.claimed_at, r.started_at) END
		FROM punctual.runs_of($1::uuid[]) r`, ids)
	_, err := pgx.ForEachRow(rows, []any{&r.ID, &r.Status, &r.Reason, &finished, &began}, func() error {
		p := places[r.ID]
		r.FinishedAt = pg.OrZero(finished)
		if p.of.runs[p.step] = r; began != nil {
			p.of.began[p.step] = *began
		}
		return nil
	})
	return pg.Wrap("reading the runs of steps", err)
}

// wrong says what is wrong with a workflow that is idle; empty: nothing.
func (w *verifiedWorkflow) wrong() string {
	if !w.idle {
		return ""
	}
	if !w.known {
		return "it continues, but has no row in workflows: none of its steps will start"
	}
	if w.status.Final() {
		for _, s := range w.definition.Steps {
			if r, has := w.runs[s.Name]; has && !r.Status.Final() {
				return fmt.Sprintf("it has ended, and its step %s is %s", s.Name, r.Status)
			}
		}
	}
	late := !w.status.Final() && w.reason == domain.ReasonTimeout
	halted := w.status == domain.StatusCancelled || w.status == domain.StatusDead && w.reason == domain.ReasonTimeout ||
		!w.status.Final() && w.reason != "" && !late
	next := domain.AdvanceSteps(w.definition, w.id, w.runs, halted)
	if late {
		next = domain.CleanUpSteps(w.definition, w.id, w.runs)
	}
	switch {
	case len(next.Enter) > 0:
		return fmt.Sprintf("its step %s should have started", next.Enter[0].Name)
	case len(next.Skip) > 0:
		return fmt.Sprintf("its step %s should have been skipped", next.Skip[0].Step.Name)
	case next.Ended && !w.status.Final():
		return "its steps have all ended, and it has not"
	case !next.Ended && w.status.Final() && !halted:
		return "it has ended before its steps"
	}
	return ""
}

// disorder says how the runs of steps contradict each other or the workflow; empty: they do not. A rerun may have taken
// a step as succeeded: that one was never claimed.
func (w *verifiedWorkflow) disorder() string {
	if w.status == domain.StatusSucceeded {
		o := domain.JudgeSteps(domain.Assignment{}, w.runs, "", time.Time{}, time.Time{})
		if o.Verdict != domain.Succeed {
			return "it has succeeded, and not all of its steps have: " + o.Error
		}
	}
	for _, s := range w.definition.Steps {
		began, ran := w.began[s.Name]
		for _, name := range s.DependsOn {
			before, has := w.runs[name]
			switch {
			case !ran:
			case !has || !before.Status.Final() || s.When != jobspec.WhenEnded && before.Status != domain.StatusSucceeded:
				return fmt.Sprintf("its step %s ran, and step %s, on which it depends, had not ended as that needs", s.Name, name)
			case began.Before(before.FinishedAt.Add(-apart)):
				return fmt.Sprintf("its step %s began before step %s, on which it depends, had ended", s.Name, name)
			}
		}
	}
	return ""
}
