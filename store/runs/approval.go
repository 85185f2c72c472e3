package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// LinkedStep is a step that waits for approval, or about which a person has decided, as the recipient of a link sees
// it.
type LinkedStep struct {
	Run      uuid.UUID     `json:"run" doc:"The run of the step." example:"019a3c5f-0000-8f20-b2c4-0a9d6e5f1b73"`
	Workflow uuid.UUID     `json:"workflow_run" doc:"The run of its workflow." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	Job      string        `json:"job" doc:"Name of the job." example:"nightly-etl"`
	Tenant   string        `json:"tenant" doc:"Name of the tenant." example:"billing"`
	Step     string        `json:"step" doc:"Name of the step." example:"approve"`
	Status   domain.Status `json:"status" doc:"running: it waits." example:"running"`
	Since    *time.Time    `json:"since" doc:"Since when it waits, or has waited. Null: it was cancelled before it waited."`
	Until    *time.Time    `json:"until" doc:"Until when it waits. Null: it waits no more."`
	Decision string        `json:"decision" doc:"The decision in words: by whom and when; or why it ended without one. Empty: it waits." example:""`
	SentTo   string        `json:"sent_to" doc:"The recipient of the link." example:"Slack hooks.slack.com"`
}

// Decide ends the run of a step that waits for approval as the context's actor decides. id may also be the workflow's
// run while one step of it waits. The error is pg.ErrState, which says who decided and when, if a decision came first.
func (s *Runs) Decide(
	ctx context.Context, tenant int32, id uuid.UUID, approved bool, note string,
) (ended Run, err error) {
	q := s.db.Callers.Reader(tenant)
	run, err := ReadRow(ctx, q, tenant, id)
	if err != nil {
		return run, err
	}
	if run.Step == "" {
		if id, err = s.waiting(ctx, q, tenant, &run); err != nil {
			return run, err
		}
	}
	return s.decide(ctx, tenant, id, approved, note)
}

// DecideByLink is Decide for a recipient of the step's notice, who shows the token of the link.
func (s *Runs) DecideByLink(
	ctx context.Context, run uuid.UUID, token string, approved bool, note string,
) (LinkedStep, error) {
	a, err := s.ByLink(ctx, run, token)
	if err != nil {
		return a, err
	}
	actor := audit.ActorOf(ctx)
	actor.Kind, actor.Name = audit.Link, a.SentTo
	if _, err := s.decide(audit.WithActor(ctx, actor), 0, run, approved, note); err != nil {
		return a, err
	}
	return s.ByLink(ctx, run, token)
}

func (s *Runs) decide(
	ctx context.Context, tenant int32, id uuid.UUID, approved bool, note string,
) (ended Run, err error) {
	d := domain.Decision{Approved: approved, By: audit.ActorOf(ctx).Words(), Note: note}
	err = s.claims.Decide(ctx, tenant, id, d, func(tx *pg.Tx, of int32) error {
		if ended, err = Read(ctx, tx, of, id); err != nil {
			return err
		}
		action := audit.RunReject
		if approved {
			action = audit.RunApprove
		}
		return audit.Write(ctx, tx, of, audit.Change{
			Action: action, ID: id, Job: ended.JobID, Name: ended.Job,
			Before: runShot{Status: domain.StatusRunning, Step: ended.Step},
			After:  runShot{Status: ended.Status, Step: ended.Step, Note: note},
		})
	})
	return ended, err
}

// waiting returns the run of the one step of a workflow's run that waits for approval, or, if none does, of the one
// that has.
func (s *Runs) waiting(ctx context.Context, q pg.Querier, tenant int32, run *Run) (one uuid.UUID, err error) {
	job, err := s.jobOf(ctx, q, tenant, run)
	if err != nil {
		return one, err
	}
	var ids []uuid.UUID
	if job != nil {
		for _, step := range job.Steps {
			if step.Approval != nil {
				ids = append(ids, domain.StepRunID(run.ID, step.Name))
			}
		}
	}
	type candidate struct {
		ID    uuid.UUID
		Step  string
		Waits bool
	}
	found, err := pg.All(ctx, q, pgx.RowToStructByPos[candidate], `
		SELECT r.id, r.step, y.run_id IS NOT NULL
		FROM punctual.runs r LEFT JOIN punctual.ready y ON y.run_id = r.id AND y.waits = 'person'
		WHERE r.id = ANY($1::uuid[]) ORDER BY y.run_id IS NULL, r.step`, ids)
	if err != nil {
		return one, fmt.Errorf("looking for steps that wait for approval: %w", err)
	}
	var waiting []string
	for _, c := range found {
		if c.Waits {
			waiting = append(waiting, fmt.Sprintf("%s (run %s)", c.Step, c.ID))
		}
	}
	switch {
	case len(waiting) > 1:
		return one, fmt.Errorf("%d steps of run %s wait for approval, decide about each by its own run: %s: %w",
			len(waiting), run.ID, strings.Join(waiting, ", "), pg.ErrState)
	case len(waiting) == 1, len(found) == 1:
		return found[0].ID, nil
	}
	return one, fmt.Errorf("no step of run %s waits for approval: %w", run.ID, pg.ErrState)
}

// ByLink returns what the recipient of a step's notice may see who shows the token of the link. It returns
// domain.ErrApprovalToken if the token was not made for the run.
func (s *Runs) ByLink(ctx context.Context, id uuid.UUID, token string) (a LinkedStep, err error) {
	q := s.db.Callers.Reader(pg.Everybody)
	key, err := s.claims.ReadTokenKey(ctx, q)
	if err != nil {
		return a, err
	}
	nth, err := domain.ReadApprovalToken(key, id, token)
	if err != nil {
		return a, err
	}
	var v definitions.Version
	var tenant int32
	var result seal.JSON
	var why string
	var reason domain.Reason
	err = q.QueryRow(ctx, `
		SELECT r.id, r.parent_run, coalesce(j.name, ''), t.name, r.step, r.status, r.started_at, y.due_at,
		       r.job_id, r.job_version, r.tenant, coalesce(r.reason, ''), coalesce(r.error, ''), d.result
		FROM punctual.runs r
		JOIN punctual.tenants t ON t.id = r.tenant
		LEFT JOIN punctual.jobs j ON j.id = r.job_id
		LEFT JOIN punctual.ready y ON y.run_id = r.id AND y.waits = 'person'
		LEFT JOIN punctual.run_data d ON d.run_id = $1
		WHERE r.id = $1`, id).Scan(&a.Run, &a.Workflow, &a.Job, &a.Tenant, &a.Step, &a.Status, &a.Since, &a.Until,
		&v.Job, &v.Version, &tenant, &reason, (*seal.Shown)(&why), &result)
	if err = pg.Found(err, "run %s", id); err != nil {
		return a, err
	}
	v.Step = a.Step
	found, err := s.definitions.Read(ctx, q, definitions.One(v, tenant))
	if err != nil {
		return a, fmt.Errorf("reading the job of run %s: %w", id, err)
	}
	job := found.Job(v)
	if job == nil || job.Approval == nil || nth >= len(job.Approval.Notify) {
		return a, domain.ErrApprovalToken
	}
	a.SentTo = job.Approval.Entries()[nth].Recipient().Words()
	if a.Status.Final() {
		if a.Decision = domain.DecisionOf(json.RawMessage(result), reason, why); a.Decision == "" {
			a.Decision = strings.Trim(fmt.Sprintf("%s (%s): %s", a.Status, reason, why), ": ")
		}
	}
	return a, nil
}
