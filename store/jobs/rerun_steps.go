package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/pg"
	"punctual/store/seal"
)

// stepPlan is what a rerun does with the steps of a workflow.
type stepPlan struct {
	domain.RerunPlan
	of map[string]uuid.UUID // the runs of the steps that have succeeded, by step
}

// stepsShot is what a rerun does with steps, as the audit log shows it: of results set it has nothing.
type stepsShot struct {
	From       []string          `json:"from,omitempty"`
	Set        map[string]string `json:"set,omitempty"` // notes, by step
	Definition string            `json:"definition,omitempty"`
}

func shotOf(r RerunRequest) (s stepsShot) {
	s.From = r.Steps.From
	for name, set := range r.Steps.Set {
		if s.Set == nil {
			s.Set = map[string]string{}
		}
		s.Set[name] = set.Note
	}
	if r.Original {
		s.Definition = "original"
	}
	return s
}

// refuse returns the error of a plan with steps that do not fit.
func (p stepPlan) refuse() error {
	if len(p.Refused) == 0 {
		return nil
	}
	r := &jobspec.Refusal{Code: "invalid", Reason: "steps that have succeeded do not fit the current definition; name " +
		"them in from or set, or write \"definition\": \"original\""}
	for _, s := range p.Refused {
		r.Blames = append(r.Blames, jobspec.Blame("definition", "step %q cannot be kept: %s", s.Step, s.Why))
	}
	return r
}

// planSteps decides what the rerun does with the steps of a workflow. It leaves a rerun of the whole under the current
// definition as it is.
func (a *rerun) planSteps(ctx context.Context, tx *pg.Tx, r RerunRequest) error {
	whole := len(r.Steps.From)+len(r.Steps.Set) == 0
	if whole && !r.Original && !r.dry {
		return nil
	}
	former, err := a.former(ctx, tx)
	if err != nil {
		return err
	}
	if r.Original {
		a.job.Definition, a.job.Version = former, a.run.JobVersion
	}
	if !a.job.Definition.IsWorkflow() {
		return r.noSteps()
	}
	succeeded, err := a.succeeded(ctx, tx, former.Steps)
	if err != nil {
		return err
	}
	plan, blames := r.Steps.Plan(a.job.Definition.Steps, former.Steps, succeeded)
	a.plan.RerunPlan = plan
	return jobspec.Invalid(blames)
}

// noSteps refuses what only a rerun of a workflow can be given.
func (r RerunRequest) noSteps() error {
	var blames []jobspec.Problem
	for _, f := range []struct {
		name  string
		given bool
	}{{"from", r.Steps.From != nil}, {"set", r.Steps.Set != nil}, {"definition", r.Original}, {"dry_run", r.dry}} {
		if f.given {
			blames = append(blames, jobspec.Blame(f.name, "the job has no steps; leave it out"))
		}
	}
	return jobspec.Invalid(blames)
}

// former returns the definition that the run had.
func (a *rerun) former(ctx context.Context, tx *pg.Tx) (d jobspec.Definition, err error) {
	if a.run.JobVersion == a.job.Version {
		return a.job.Definition, nil
	}
	text, err := pg.One(ctx, tx, pgx.RowTo[seal.Document],
		`SELECT v.definition::text FROM punctual.job_versions v WHERE v.job_id = $1 AND v.version = $2`,
		a.job.ID, a.run.JobVersion)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, a.versionGone()
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &d)
	}
	return d, pg.Wrap(fmt.Sprintf("reading version %d of job %s", a.run.JobVersion, a.job.ID), err)
}

func (a *rerun) versionGone() error {
	return fmt.Errorf("version %d of the job, which run %s used, is not kept any more: %w", a.run.JobVersion, a.run.ID,
		pg.ErrState)
}

// keepVersion keeps the version that the run had for as long as the rerun is kept.
func (a *rerun) keepVersion(ctx context.Context, tx *pg.Tx) error {
	done, err := tx.Exec(ctx, `UPDATE punctual.job_versions SET rerun_at = $3 WHERE job_id = $1 AND version = $2`,
		a.job.ID, a.run.JobVersion, a.now)
	if err == nil && done.RowsAffected() == 0 {
		return a.versionGone()
	}
	return pg.Wrap("keeping a version of job "+a.job.ID.String(), err)
}

// succeeded reads which steps of the run have succeeded.
func (a *rerun) succeeded(ctx context.Context, tx *pg.Tx, steps []jobspec.Step) (map[string]bool, error) {
	names := map[uuid.UUID]string{}
	var ids []uuid.UUID
	for _, s := range steps {
		id := domain.StepRunID(a.run.ID, s.Name)
		ids, names[id] = append(ids, id), s.Name
	}
	found, err := pg.All(ctx, tx, pgx.RowTo[uuid.UUID],
		`SELECT r.id FROM punctual.runs r WHERE r.id = ANY($1::uuid[]) AND r.status = 'succeeded'`, ids)
	succeeded := map[string]bool{}
	a.plan.of = map[string]uuid.UUID{}
	for _, id := range found {
		succeeded[names[id]], a.plan.of[names[id]] = true, id
	}
	return succeeded, pg.Wrap("reading the steps of run "+a.run.ID.String(), err)
}

// enterSteps makes the runs of steps that are kept or set.
func (a *rerun) enterSteps(ctx context.Context, tx *pg.Tx, id uuid.UUID, r RerunRequest) error {
	var taken []claim.TakenStep
	for _, name := range a.plan.Kept {
		taken = append(taken, claim.TakenStep{Step: name, KeptFrom: new(a.plan.of[name])})
	}
	for _, name := range a.plan.Set {
		set := r.Steps.Set[name]
		taken = append(taken, claim.TakenStep{
			Step: name, Result: set.Result, Note: set.Note, By: audit.ActorOf(ctx).Words(),
		})
	}
	if taken == nil {
		return nil
	}
	var b pgx.Batch
	claim.QueueTakenSteps(&b, a.now, id, taken)
	return pg.Wrap("writing the steps of run "+id.String(), tx.SendBatch(ctx, &b).Close())
}
