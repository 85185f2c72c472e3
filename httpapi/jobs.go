package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
)

// jobAnswer is one job with its ETag.
type jobAnswer struct {
	Status   int
	Location string `header:"Location" doc:"Path of the job, when it was created."`
	ETag     string `header:"ETag" doc:"The job's ETag, for If-Match and If-None-Match: the job's version, a dot and a digest of this response."`
	Body     Job
}

// answerJob returns the answer that shows a job, unless writing it failed.
func (s *server) answerJob(r jobs.Record, err error) (*jobAnswer, error) {
	if err != nil {
		return nil, err
	}
	answer, err := answerWith(r.Version, showOne(r, s.DefaultJitter))
	if err == nil {
		answer.Body.SkippedWhilePaused = r.SkippedWhilePaused // no part of the job, so not of its ETag
	}
	return answer, err
}

// answerWith returns the answer that shows a job. Its ETag changes whenever the shown job does.
func answerWith(version int32, job Job) (*jobAnswer, error) {
	rendered, err := body.Render(job)
	return &jobAnswer{Status: http.StatusOK, ETag: etag(version, rendered), Body: job}, err
}

func jobPath(id uuid.UUID) string { return "/v1/jobs/" + id.String() }

func (s *server) jobRoutes() {
	api.RegisterBody[JobInput](s.api, api.Operation{
		ID: "create-job", Route: "POST /v1/jobs", Role: auth.RoleSubmitter, Tag: tagJobs, Summary: "Create a job",
		Status: http.StatusCreated, Responses: api.Rendered[Job](s.api, http.StatusCreated),
		Conflict: jobs.ErrNameTaken,
		Codes:    []problem.Code{problem.CodeLimit, problem.CodeCronMismatch},
		Asks:     exampleJobInput,
		Description: "A name, a schedule and a target's URL are a complete job; everything else has a default. All errors " +
			"in the body are reported at once. A submitter creates one-shots only (at, delay).",
	}, api.Required, s.createJob)
	api.Register(s.api, api.Operation{
		ID: "get-job", Route: "GET /v1/jobs/{job}", Role: auth.RoleViewer, Tag: tagJobs, Summary: "Get a job",
		Responses:   map[string]*huma.Response{"304": {Description: "The response has an ETag that If-None-Match names"}},
		Description: "With its last run and its next slot.",
	}, s.getJob)
	api.Register(s.api, api.Operation{
		ID: "list-jobs", Route: "GET /v1/jobs", Role: auth.RoleViewer, Tag: tagJobs, Summary: "List jobs",
		Description: "Newest first. All filters must match. A page of large definitions ends before `limit`, after 4 MiB.",
	}, s.listJobs)
}

func (s *server) createJob(ctx context.Context, tenant int32, in *Keyed[JobInput]) (*answered, error) {
	job := in.Request.Value
	if err := in.Request.Check(append(api.Within("body", job.Validate()),
		s.forbidden(tenant, "body", job.Definition)...)...); err != nil {
		return nil, err
	}
	if err := mayCreate(ctx, in.Request.Value); err != nil {
		return nil, err
	}
	job = submitted(ctx, job)
	out, made, err := once(ctx, s, tenant, in.by(), http.StatusCreated, func(w store.Writer) (Job, error) {
		record, err := w.CreateJob(ctx, job.newJob())
		if err != nil {
			return Job{}, err
		}
		return showOne(record, s.DefaultJitter), nil
	})
	if err != nil {
		return nil, err
	}
	out.Location, out.ETag = jobPath(made.ID), etag(made.Version, out.Body)
	return out, nil
}

type oneJobInput struct {
	JobRef
	IfNoneMatch
}

func (s *server) getJob(ctx context.Context, tenant int32, in *oneJobInput) (*jobAnswer, error) {
	record, err := s.Store.Jobs.GetJob(ctx, tenant, in.Job)
	if err != nil {
		return nil, err
	}
	job := showOne(record, s.DefaultJitter)
	job.Frozen = s.freezes.of(ctx, tenant, auth.CallerOf(ctx).Role)
	out, err := answerWith(record.Version, job)
	if err == nil && in.matches(out.ETag) {
		out.Status = http.StatusNotModified
	}
	return out, err
}

type deleteJobInput struct {
	JobRef
	IfMatch
	Force bool `query:"force" doc:"Delete it even if runs of other jobs trigger it."`
}

func (s *server) deleteJob(ctx context.Context, tenant int32, in *deleteJobInput) (*struct{}, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return nil, s.Store.Jobs.DeleteJob(ctx, tenant, in.Job, version, in.Force)
}

type listJobsInput struct {
	State   string   `query:"state" enum:"active,paused,completed" doc:"Only jobs in this state. Of completed, a page looks into 20,000 one-shots: it may have few items, or none, and a next_cursor that continues with older jobs."`
	Queue   string   `query:"queue" maxLength:"64" doc:"Only jobs of this queue."`
	Label   []string `query:"label,explode" maxItems:"32" doc:"Only jobs with this label, as name=value. Repeat the parameter for several labels." example:"[\"team=billing\"]"`
	Name    string   `query:"name" maxLength:"128" doc:"Only jobs whose name begins with this text."`
	Q       string   `query:"q" maxLength:"128" doc:"Only jobs with this text in their name or description. Upper and lower case are the same. Without a label or name too, a page looks into 2,000 jobs: it may have few items, or none, and a next_cursor that continues with older jobs."`
	Failing string   `query:"failing" enum:"true" doc:"true: only jobs that fail, as GET /v1/overview counts them: an open dead letter, or a run that is retried, is newer than the last success. Of the 1,000 jobs with the newest failures."`
	Overdue string   `query:"overdue" enum:"true" doc:"true: only jobs of which a slot or a run is overdue, as GET /v1/overview counts them; up to 1,000."`
	Paused  string   `query:"paused_by_operation" format:"uuid" doc:"Only jobs that this operation paused, and that nothing has resumed or paused since."`
	Recent  int      `query:"recent" minimum:"0" maximum:"20" doc:"Shows the newest runs and skips of each job, this many at most, in recent. Without them after 2 s: see recent.unread." example:"20"`
	View
	Paging
}

func (s *server) listJobs(ctx context.Context, tenant int32, in *listJobsInput) (*answer[List[ListedJob]], error) {
	labels, err := parseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	among, err := s.troubled(ctx, tenant, in)
	if err != nil {
		return nil, err
	}
	pausedBy, err := optionalID("query.paused_by_operation", in.Paused, "must be the id of an operation")
	if err != nil {
		return nil, err
	}
	records, next, err := s.Store.Jobs.ListJobs(ctx, tenant, jobs.Filter{
		State: domain.JobState(in.State), Queue: in.Queue, Labels: labels, NamePrefix: in.Name, Query: in.Q,
		Among: among, PausedBy: pausedBy, Recent: in.Recent, Page: in.page(),
	})
	return listOf(records, next, err, func(r jobs.Record) ListedJob {
		return ListedJob{Job: showJob(r, s.DefaultJitter), Recent: r.Recent, short: in.short()}
	})
}

// troubled returns the jobs that are failing or overdue, as the list asks for; nil: it asks for neither.
func (s *server) troubled(ctx context.Context, tenant int32, in *listJobsInput) (among []uuid.UUID, err error) {
	if in.Failing != "" {
		if among, err = s.Store.Overview.FailingJobs(ctx, tenant); err != nil {
			return nil, err
		}
	}
	if in.Overdue == "" {
		return among, nil
	}
	overdue, err := s.Store.Overview.OverdueJobs(ctx, tenant)
	if in.Failing == "" {
		return overdue, err
	}
	return slices.DeleteFunc(among, func(id uuid.UUID) bool { return !slices.Contains(overdue, id) }), err
}

// parseLabels reads filters of the form name=value.
func parseLabels(filters []string) (map[string]string, error) {
	labels := map[string]string{}
	for i, filter := range filters {
		name, value, ok := strings.Cut(filter, "=")
		at := fmt.Sprintf("query.label[%d]", i)
		if !ok || name == "" {
			return nil, problem.Invalid(problem.At(at, "must be of the form name=value"))
		}
		if other, ok := labels[name]; ok && other != value {
			return nil, problem.Invalid(problem.At(at,
				"asks for a second value of the same label; a label of a job has one value"))
		}
		labels[name] = value
	}
	return labels, nil
}
