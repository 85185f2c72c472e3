package httpapi

import (
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/letters"
)

func (s *server) bulkJobRoutes() {
	registerMany[PauseJobsInput](s, jobs.PauseMany, "Pause many jobs",
		`{"filter":{"state":"active","labels":{"team":"billing"}},"until":"2026-12-01T09:00:00Z",`+
			`"note":"the warehouse moves"}`,
		"Jobs that are paused already stay as they are, with their own note and end. Completed jobs have no slot to pause, "+
			"and are not selected.", s.pauseJobs)
	registerMany[JobsInput](s, jobs.ResumeMany, "Resume many jobs",
		`{"filter":{"state":"paused","labels":{"team":"billing"}},"note":"it has moved"}`,
		"Slots that passed during a pause become one recorded skip, and a one-shot that was due fires now. Completed jobs "+
			"are not selected.", s.changeJobs(jobs.ResumeMany))
	registerMany[JobsInput](s, jobs.DeleteMany, "Delete many jobs",
		`{"filter":{"name":"reminder-2025-","state":"completed"},"max_per_second":50}`,
		"Each job's future slots stop and its pending runs are cancelled; the history stays.", s.changeJobs(jobs.DeleteMany))
}

// registerMany adds an operation on many jobs. does is the part of its description that is not the same for all.
func registerMany[B, I any](
	s *server, action jobs.Action, summary, asks, does string,
	handle func(context.Context, int32, *I) (*answered, error),
) {
	api.RegisterBody[B](s.api, api.Operation{
		ID: string(action) + "-jobs", Route: "POST /v1/jobs/" + string(action), Role: auth.RoleEditor, Tag: tagJobs,
		Summary: summary, Status: http.StatusAccepted, Responses: started[Matched](s.api),
		Asks: asks, Answers: []string{exampleOfJobs, `{"kind":"` + string(action) + `"}`},
		Description: "Selects the jobs that match at this moment, and starts an operation that works on them in the " +
			"background, oldest jobs first, as fast as possible unless max_per_second sets a limit. " + does +
			" A job that no longer matches when its turn comes stays as it is and counts as failed. The audit log has an entry for each job " +
			"that was changed. With dry_run, the response is 200 with the number of jobs, and nothing is changed. A job may be " +
			"named " + string(action) + ": with other methods than POST, this path is about that job.",
	}, api.Required, handle)
}

// JobsInput is the body that asks for work on many jobs.
type JobsInput struct {
	Filter       *JobSelection `json:"filter" nullable:"false" doc:"Selects jobs. An empty object selects all of them."`
	MaxPerSecond *int          `json:"max_per_second,omitempty" minimum:"1" maximum:"1000" doc:"The most jobs that it processes in a second. Absent: no limit." example:"50"`
	DryRun       bool          `json:"dry_run,omitempty" doc:"Only count the jobs; change nothing." example:"false"`
	Note         string        `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read; kept with each job's change. Absent: none." example:"the warehouse moves"`
}

// PauseJobsInput is the body that asks to pause many jobs.
type PauseJobsInput struct {
	JobsInput
	Until jobspec.Instant `json:"until,omitzero" doc:"When they resume by themselves. Absent: they stay paused until a caller resumes them." example:"2026-12-01T09:00:00Z"`
}

// JobSelection selects jobs, as the query parameters of the list of jobs do. All conditions that are given must match.
type JobSelection struct {
	State  domain.JobState   `json:"state,omitempty" minLength:"1" enum:"active,paused,completed" doc:"Only jobs in this state. Absent: in any state." example:"active"`
	Queue  string            `json:"queue,omitempty" minLength:"1" maxLength:"64" doc:"Only jobs of this queue. Absent: of all queues." example:"default"`
	Labels map[string]string `json:"labels,omitempty" doc:"Only jobs with all of these labels. Absent: with any labels."`
	Name   string            `json:"name,omitempty" minLength:"1" maxLength:"128" doc:"Only jobs whose name begins with this text. Absent: with any name." example:"daily-"`
	Q      string            `json:"q,omitempty" minLength:"1" maxLength:"128" doc:"Only jobs with this text in their name or description. Upper and lower case are the same. Absent: with any text." example:"invoice"`

	PausedByOperation string `json:"paused_by_operation,omitempty" minLength:"1" format:"uuid" doc:"Only jobs that this operation paused, and that nothing has resumed or paused since. Absent: paused by any operation, or by none."`
}

func (b JobsInput) validate() []problem.FieldError {
	errors := append(note(b.Note), upTo("body.max_per_second", b.MaxPerSecond, mostPerSecond)...)
	f := b.Filter
	if f == nil {
		return append(errors, problem.At("body.filter", "is required; {} selects all jobs"))
	}
	errors = append(errors,
		oneOf("body.filter.state", f.State, domain.JobActive, domain.JobPaused, domain.JobCompleted)...)
	if f.PausedByOperation != "" && !uuidForm.MatchString(f.PausedByOperation) {
		errors = append(errors, problem.At("body.filter.paused_by_operation", "must be the id of an operation"))
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"queue", f.Queue, 64}, {"name", f.Name, 128}, {"q", f.Q, 128}} {
		errors = append(errors, searched("body.filter."+text.field, text.value, text.most)...)
	}
	return append(errors, soughtLabels("body.filter.labels", f.Labels)...)
}

// searched returns what is wrong with a text that is searched for.
func searched(at, text string, most int) []problem.FieldError {
	if n := utf8.RuneCountInString(text); n > most {
		return []problem.FieldError{problem.Atf(at, "has %d characters; at most %d", n, most)}
	}
	return noNUL(at, text)
}

// request returns the store's request for a valid input.
func (b JobsInput) request(action jobs.Action) letters.JobsRequest {
	f := b.Filter
	filter := jobs.Filter{State: f.State, Queue: f.Queue, Labels: f.Labels, NamePrefix: f.Name, Query: f.Q}
	if f.PausedByOperation != "" {
		filter.PausedBy = new(uuid.MustParse(f.PausedByOperation))
	}
	return letters.JobsRequest{
		MaxPerSecond: or(b.MaxPerSecond, 0), Change: jobs.Change{Action: action, Note: b.Note, Filter: filter},
	}
}

func (s *server) pauseJobs(ctx context.Context, tenant int32, in *Keyed[PauseJobsInput]) (*answered, error) {
	asked := in.Request.Value
	if err := in.Request.Check(append(asked.validate(), instant("body.until", asked.Until)...)...); err != nil {
		return nil, err
	}
	until, err := s.future(ctx, asked.Until)
	if err != nil {
		return nil, err
	}
	r := asked.request(jobs.PauseMany)
	r.Until = until
	return s.startJobs(ctx, tenant, in.by(), r, asked.DryRun)
}

// future returns the end of a pause; nil: it has none. An end that has passed is an error.
func (s *server) future(ctx context.Context, until jobspec.Instant) (*time.Time, error) {
	if until.IsZero() {
		return nil, nil
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if !until.Value().After(now) {
		return nil, problem.Invalid(problem.At("body.until", "is in the past"))
	}
	return orNil(until), nil
}

// changeJobs handles the changes that need nothing but a selection.
func (s *server) changeJobs(
	action jobs.Action,
) func(context.Context, int32, *Keyed[JobsInput]) (*answered, error) {
	return func(ctx context.Context, tenant int32, in *Keyed[JobsInput]) (*answered, error) {
		asked := in.Request.Value
		if err := in.Request.Check(asked.validate()...); err != nil {
			return nil, err
		}
		return s.startJobs(ctx, tenant, in.by(), asked.request(action), asked.DryRun)
	}
}

// startJobs starts a change of many jobs, or counts the jobs.
func (s *server) startJobs(
	ctx context.Context, tenant int32, by store.Idempotency, r letters.JobsRequest, dryRun bool,
) (*answered, error) {
	if dryRun {
		n, err := s.Store.Letters.CountSelectedJobs(ctx, tenant, r)
		return counted(Matched{n}, err)
	}
	return accept(ctx, s, tenant, by, atOperation, func(w store.Writer) (letters.Operation, error) {
		return w.StartJobs(ctx, r)
	})
}
