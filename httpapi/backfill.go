package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/letters"
)

func (s *server) backfillRoutes() {
	api.RegisterBody[BackfillInput](s.api, api.Operation{
		ID: "backfill-job", Route: "POST /v1/jobs/{job}/backfill", Role: auth.RoleEditor, Tag: tagJobs,
		Summary: "Backfill a job's past slots", Status: http.StatusAccepted, Responses: started[BackfillCount](s.api),
		Answers: []string{exampleOfJobs, exampleBackfill},
		Description: "Starts an operation that creates a run for each slot in a range of time that has no run. It works in " +
			"the background, oldest slots first. It covers slots that were skipped, and slots from before the job was " +
			"created. The slots are those of the job's current schedule: at most 100,000, and no further back than runs are " +
			"kept. A slot that has a run, whether it succeeded or not, gets another only with rerun. Slots that are still to " +
			"be claimed, for example after an outage, are left to the schedule. The runs have the trigger backfill and never " +
			"expire. They run one at a time, the oldest slot first, unless concurrency is allow. Repeating a backfill without " +
			"rerun creates nothing new. With dry_run, the response is 200 with the numbers, and nothing is created.",
	}, api.Required, s.backfillJob)
}

// BackfillInput is the body that asks for runs of past slots.
type BackfillInput struct {
	From         string `json:"from" format:"instant-local-time-or-day" doc:"Slots at or after this, no further back than runs are kept: an instant in RFC 3339, a local time such as 2026-11-16T03:00, or a day such as 2026-11-16, which is its first moment. A time without an offset and a day are those of the time zone of the job's schedule, and of UTC if it has none." example:"2026-11-01"`
	To           string `json:"to" format:"instant-local-time-or-day" doc:"Slots before this, in the same forms; not in the future. It is not included: a day as the end is the first one that is left out. So 2026-11-16 to 2026-11-23 is the week from the 16th to the 22nd." example:"2026-12-01"`
	Rerun        bool   `json:"rerun,omitempty" doc:"Slots that have a run get another run, with its own Idempotency-Key." example:"false"`
	Concurrency  string `json:"concurrency,omitempty" minLength:"1" enum:"one_at_a_time,allow" default:"one_at_a_time" doc:"one_at_a_time: oldest slot first, and each run begins when the one before has ended, retries included, regardless of the job's concurrency_policy. A dead run has ended too. allow: they begin at once, and overlap unless the job's concurrency_policy forbids it." example:"one_at_a_time"`
	MaxPerSecond *int   `json:"max_per_second,omitempty" minimum:"1" maximum:"1000" default:"50" doc:"The most runs that it creates in a second." example:"10"`
	Chain        bool   `json:"chain,omitempty" doc:"Their ends trigger the jobs in then." example:"false"`
	DryRun       bool   `json:"dry_run,omitempty" doc:"Only count the slots; create nothing." example:"false"`
	Note         string `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read; kept with the operation. Absent: none." example:"invoices of November with the new template"`
}

func (b BackfillInput) validate() []problem.FieldError {
	return slices.Concat(note(b.Note), upTo("body.max_per_second", b.MaxPerSecond, mostPerSecond), b.bounds(),
		oneOf("body.concurrency", b.Concurrency, letters.ConcurrencyOneAtATime, letters.ConcurrencyAllow))
}

// bounds returns what is wrong with each of the two bounds by itself. The store says what is wrong with both.
func (b BackfillInput) bounds() (errors []problem.FieldError) {
	for _, bound := range []struct{ at, text string }{{"body.from", b.From}, {"body.to", b.To}} {
		if bound.text == "" {
			errors = append(errors, problem.At(bound.at, "is required"))
		} else if _, _, err := jobspec.ParseLocal(bound.text); err != nil {
			errors = append(errors, problem.Atf(bound.at, "%q %v", problem.Clip(bound.text), err))
		}
	}
	return errors
}

func (b BackfillInput) request(job string) letters.BackfillRequest {
	return letters.BackfillRequest{
		Job: job, Rerun: b.Rerun, Chain: b.Chain, OneAtATime: b.Concurrency != letters.ConcurrencyAllow,
		MaxPerSecond: or(b.MaxPerSecond, defaultRate), Note: b.Note,
		When: func(zone *time.Location) (from, to time.Time) { return boundIn(zone, b.From), boundIn(zone, b.To) },
	}
}

// boundIn returns the instant of a bound that [jobspec.ParseLocal] reads.
func boundIn(zone *time.Location, text string) time.Time {
	at, local, _ := jobspec.ParseLocal(text)
	if local {
		return cron.Local(at, zone).At.UTC()
	}
	return at
}

// BackfillCount is the answer to a dry run of a backfill.
type BackfillCount struct {
	Matched   int       `json:"matched" doc:"How many slots the backfill covers." example:"31"`
	NewRuns   int       `json:"new_runs" doc:"How many runs would be created now." example:"4"`
	From      time.Time `json:"from" doc:"Slots at or after this instant." example:"2026-11-01T07:00:00Z"`
	To        time.Time `json:"to" doc:"Slots before this instant." example:"2026-12-01T08:00:00Z"`
	FromLocal string    `json:"from_local" doc:"The same instant in timezone." example:"2026-11-01T00:00:00-07:00"`
	ToLocal   string    `json:"to_local" doc:"The same instant in timezone." example:"2026-12-01T00:00:00-08:00"`
	Timezone  string    `json:"timezone" doc:"The time zone of the job's schedule; UTC if it has none." example:"America/Los_Angeles"`
}

type backfillJobInput struct {
	JobRef
	Keyed[BackfillInput]
}

// backfillJob looks for the slots before it takes the Idempotency-Key, so it holds nothing meanwhile. A request that
// can no longer be met may repeat one that was met before: then the first answer is repeated.
func (s *server) backfillJob(ctx context.Context, tenant int32, in *backfillJobInput) (*answered, error) {
	asked := in.Request.Value
	var plan letters.BackfillPlan
	var cannot error
	if len(asked.bounds()) == 0 {
		plan, cannot = s.Store.Letters.PlanBackfill(ctx, tenant, asked.request(in.Job))
	}
	blamed := api.Within("body", jobspec.BlamesOf(cannot))
	for i := range blamed {
		if blamed[i].Location == "body.job" {
			blamed[i].Location = "path.job"
		}
	}
	if problems := asked.validate(); len(problems) > 0 || len(in.Request.Errors) > 0 {
		return nil, in.Request.Check(append(problems, blamed...)...)
	}
	if len(blamed) > 0 {
		cannot = problem.Invalid(blamed...)
	}
	if asked.DryRun {
		if cannot != nil {
			return nil, cannot
		}
		n, err := s.Store.Letters.CountBackfill(ctx, plan)
		return counted(BackfillCount{
			Matched: plan.Matched(), NewRuns: n, From: plan.From, To: plan.To, Timezone: plan.Zone().String(),
			FromLocal: plan.From.In(plan.Zone()).Format(time.RFC3339), ToLocal: plan.To.In(plan.Zone()).Format(time.RFC3339),
		}, err)
	}
	return accept(ctx, s, tenant, in.by(), atOperation, func(w store.Writer) (letters.Operation, error) {
		if cannot != nil {
			return letters.Operation{}, cannot
		}
		return w.StartBackfill(ctx, plan)
	})
}
