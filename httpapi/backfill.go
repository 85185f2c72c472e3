package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/letters"
)

func (s *server) backfillRoutes() {
	registerBody[BackfillInput](s, huma.Operation{
		OperationID: "backfill-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/backfill", Tags: []string{tagJobs},
		Summary: "Backfill a job's past slots", DefaultStatus: http.StatusAccepted,
		Description: "Starts an operation that creates a run for each slot in a range of time that has no run. It works in " +
			"the background, oldest slots first. It covers slots that were skipped, and slots from before the job was " +
			"created. The slots are those of the job's current schedule: at most 100,000, and no further back than runs are " +
			"kept. A slot that has a run, whether it succeeded or not, gets another only with rerun. Slots that are still to " +
			"be claimed, for example after an outage, are left to the schedule. The runs have the trigger backfill and never " +
			"expire. They run one at a time, unless the job's concurrency_policy is allow. Repeating a backfill without rerun " +
			"creates nothing new. With dry_run, the response is 200 with the numbers, and nothing is created.",
		Responses: s.started(exampleRunningBackfill(), BackfillCount{Matched: 31, NewRuns: 4}),
	}, required, exampleBackfill, s.backfillJob)
}

// BackfillInput is the body that asks for runs of past slots.
type BackfillInput struct {
	From         domain.Instant `json:"from" doc:"Slots at or after this instant, no further back than runs are kept." example:"2026-11-01T00:00:00Z"`
	To           domain.Instant `json:"to" doc:"Slots before this instant, which is not in the future." example:"2026-12-01T00:00:00Z"`
	Rerun        bool           `json:"rerun,omitempty" doc:"Slots that have a run get another run, with its own Idempotency-Key." example:"false"`
	MaxPerSecond *int           `json:"max_per_second,omitempty" minimum:"1" maximum:"1000" default:"50" doc:"The most runs that it creates in a second." example:"10"`
	DryRun       bool           `json:"dry_run,omitempty" doc:"Only count the slots; create nothing." example:"false"`
	Note         string         `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read; kept with the operation." example:"invoices of November with the new template"`
}

func (b BackfillInput) validate() []problem.FieldError {
	return slices.Concat(note(b.Note), upTo("body.max_per_second", b.MaxPerSecond, mostPerSecond), b.bounds())
}

// bounds returns what is wrong with each of the two bounds by itself or, if nothing is, with both together.
func (b BackfillInput) bounds() (errors []problem.FieldError) {
	for _, bound := range []struct {
		at    string
		value domain.Instant
	}{{"body.from", b.From}, {"body.to", b.To}} {
		if bound.value.IsZero() {
			errors = append(errors, problem.At(bound.at, "is required"))
		}
		errors = append(errors, instant(bound.at, bound.value)...)
	}
	if len(errors) == 0 && !b.From.Value().Before(b.To.Value()) {
		errors = append(errors, problem.Atf("body.to", "%s is not after from", b.To))
	}
	return errors
}

func (b BackfillInput) request(job string) letters.BackfillRequest {
	return letters.BackfillRequest{
		Job: job, From: b.From.Value(), To: b.To.Value(), Rerun: b.Rerun, MaxPerSecond: or(b.MaxPerSecond, defaultRate),
		Note: b.Note,
	}
}

// BackfillCount is the answer to a dry run of a backfill.
type BackfillCount struct {
	Matched int `json:"matched" doc:"How many slots the backfill covers." example:"31"`
	NewRuns int `json:"new_runs" doc:"How many runs would be created now." example:"4"`
}

type backfillJobInput struct {
	JobRef
	Idempotent
	Request body[BackfillInput]
}

// backfillJob looks for the slots before it takes the Idempotency-Key, so it holds nothing meanwhile. A request that
// can no longer be met may repeat one that was met before: then the first answer is repeated.
func (s *server) backfillJob(ctx context.Context, tenant int32, in *backfillJobInput) (*answered, error) {
	asked := in.Request.value
	var plan letters.BackfillPlan
	var cannot error
	if len(asked.bounds()) == 0 {
		plan, cannot = s.Store.PlanBackfill(ctx, tenant, asked.request(in.Job))
	}
	if problems := asked.validate(); len(problems) > 0 || len(in.Request.errors) > 0 {
		return nil, in.Request.check(append(problems, backfillErrors(cannot)...)...)
	}
	if asked.DryRun {
		if cannot != nil {
			return nil, cannot
		}
		n, err := s.Store.CountBackfill(ctx, plan)
		return counted(BackfillCount{Matched: plan.Matched(), NewRuns: n}, err)
	}
	by := in.Request.under(in.Key)
	return accept(ctx, s, tenant, by, operationPath, func(w store.Writer) (letters.Operation, error) {
		if cannot != nil {
			return letters.Operation{}, cannot
		}
		return w.StartBackfill(ctx, plan)
	})
}

// backfillErrors returns the fields for which the store refuses a backfill.
func backfillErrors(err error) []problem.FieldError {
	var refused *letters.BackfillError
	if !errors.As(err, &refused) {
		return nil
	}
	fields := within("body", refused.Problems)
	for i, p := range refused.Problems {
		if p.Field == "job" {
			fields[i].Location = "path.job"
		}
	}
	return fields
}
