package httpapi

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
)

func runPath(id uuid.UUID) string { return "/v1/runs/" + id.String() }

func atRun(r runs.Run) string { return runPath(r.ID) }

func (s *server) runRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-job-runs", Route: "GET /v1/jobs/{job}/runs", Role: auth.RoleViewer, Tag: tagRuns,
		Summary:     "List the runs of a job",
		Past:        true,
		Description: "By id, this also works for a deleted job. Newest first. All filters must match. " + aYear,
	}, s.listJobRuns)
	api.Register(s.api, api.Operation{
		ID: "get-run", Route: "GET /v1/runs/{run}", Role: auth.RoleViewer, Tag: tagRuns, Summary: "Get a run",
		Past:    true,
		Answers: []string{exampleWholeRun},
		Description: "With its attempts, including the one in flight, the request that they send, and its result; or with " +
			"its steps. The request is not stored: it is built from the run and its version of the job. A dated run that is " +
			"pending is shown as it would be claimed now. When it is moved, its id changes.",
	}, s.getRun)
	api.Register(s.api, api.Operation{
		ID: "list-runs", Route: "GET /v1/runs", Role: auth.RoleViewer, Tag: tagRuns, Summary: "List runs",
		Past:        true,
		Description: "Runs and recorded skips, newest first. All filters must match. " + aYear,
	}, s.listRuns)
	api.Register(s.api, api.Operation{
		ID: "list-run-changes", Route: "GET /v1/runs/changes", Role: auth.RoleViewer, Tag: tagRuns,
		Summary: "List the runs that have ended since", Errors: []int{410},
		Conflict: stateConflict("No changes are recorded, because the tenant has no changes_kept"),
		Description: "A feed for a warehouse or a data lake: each run that has ended, by any cause, and each recorded " +
			"skip, at least once. None is skipped, even if transactions commit at the same time. Ask again with after = next. The runs " +
			"are shown as they are now; those of steps are among them. The tenant needs a changes_kept, which an operator " +
			"sets. The response is 410 if the feed cannot continue from the cursor: it points to what was removed, or what the " +
			"database has lost.",
	}, s.listRunChanges)
	api.Register(s.api, api.Operation{
		ID: "cancel-run", Route: "POST /v1/runs/{run}/cancel", Role: auth.RoleEditor, Tag: tagRuns, Summary: "Cancel a run",
		Status: http.StatusAccepted, Responses: api.Rendered[runs.Run](s.api, http.StatusAccepted),
		Conflict: stateConflict("Run 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 has ended as succeeded"),
		Answers: []string{
			examplePending, `{"status":"cancelled","reason":"cancelled_by_user","finished_at":"2026-12-01T15:20:31.114Z"}`,
		},
		Description: "A waiting run ends at once. A run in flight is cut off within two seconds, on any replica, and ends " +
			"as cancelled, even if its target responds. Until then, its status is running and its reason cancelled_by_user. " +
			"Repeating the request changes nothing. A dated run that is pending is removed: then it is not found any more. " +
			"With the run of a job with steps, those of its steps are cancelled.",
	}, s.cancelRun)
	api.RegisterBody[RerunInput](s.api, api.Operation{
		ID: "rerun-run", Route: "POST /v1/runs/{run}/rerun", Role: auth.RoleEditor, Tag: tagRuns, Summary: "Rerun a run",
		Status:    http.StatusAccepted,
		Responses: orDry[domain.RerunPlan, runs.Run](s.api, "The plan that a dry run made"),
		Conflict: stateConflict("Run 019ad964-3b80-8b21-8f6e-1d2c3b4a5968 is running: " +
			"only a run that has ended can be made again"),
		Asks:    `{"body":{"range":"2026-11-30"},"same_key":false}`,
		Answers: []string{examplePending, `{"rerun_of":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"}`},
		Description: "Creates a new run from a run that has ended, with any outcome. The new run has the trigger manual " +
			"and the same slot, and uses the job's current definition. If the original run sent its own body or headers in " +
			"place of the job's, the new run sends them too, unless the body here replaces them. The target treats it as a " +
			"new run, unless same_key is set. The concurrency_policy applies as it does to a manual trigger. The run of a step is " +
			"not made again by itself: rerun the run of its workflow, from this step. Steps of a workflow that are kept or set " +
			"have succeeded from the beginning. With dry_run, the response is 200 with what becomes of each step, and nothing is " +
			"created.",
	}, api.Optional, s.rerunRun)
}

// RunRef is the input of operations on one run.
type RunRef struct {
	Run pathID `path:"run" doc:"Id of the run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
}

// Exists returns ErrNotFound for a malformed id.
func (r RunRef) Exists() error { return r.Run.exists() }

// NotFound implements api.Named.
func (RunRef) NotFound() string { return "There is no run with that id." }

func (s *server) getRun(ctx context.Context, tenant int32, in *RunRef) (*answer[runs.Run], error) {
	run, err := s.Store.Runs.GetRun(ctx, tenant, in.Run.id)
	if err != nil {
		return nil, err
	}
	run.Request = showRequest(run, s.Origin)
	one := []runs.Run{run}
	if err := s.Store.Runs.FillCauses(ctx, tenant, one); err != nil {
		return nil, err
	}
	run = one[0]
	if !run.Status.Final() && run.WaitingFor == nil {
		run.WaitingFor, err = s.Store.Runs.RunWaitsFor(ctx, tenant, in.Run.id)
	}
	return show(run, err)
}

func (s *server) cancelRun(ctx context.Context, tenant int32, in *RunRef) (*answer[runs.Run], error) {
	return show(s.Store.Runs.CancelRun(ctx, tenant, in.Run.id))
}

// aYear says where a page of runs ends before its limit: see runs.MostDays.
const aYear = "A page looks through 366 days with runs: it may then have few items, or none, and a next_cursor that " +
	"continues with older runs."

// parseID returns ErrNotFound for a malformed id.
func parseID(text string) (uuid.UUID, error) {
	if !uuidForm.MatchString(text) {
		return uuid.Nil, store.ErrNotFound
	}
	return uuid.Parse(text)
}

// RunFilters are the filters for lists of runs.
type RunFilters struct {
	Status   domain.Status  `query:"status" doc:"Only runs in this status."`
	Reason   domain.Reason  `query:"reason" doc:"Only runs with this reason."`
	Trigger  domain.Trigger `query:"trigger" doc:"Only runs with this trigger. Runs of steps are left out unless this is step, or workflow_run is given."`
	Workflow string         `query:"workflow_run" format:"uuid" doc:"Only the runs of the steps of this workflow's run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	Late     string         `query:"late" enum:"true,false" doc:"true: only runs that are late; false: only runs that are not."`
	Label    []string       `query:"label,explode" maxItems:"32" doc:"Only runs of jobs with this label, as name=value. Repeat the parameter for several labels." example:"[\"team=billing\"]"`
	From     instantParam   `query:"from" doc:"Only slots at or after this instant, and skips that cover such slots." example:"2026-12-01T00:00:00Z"`
	To       instantParam   `query:"to" doc:"Only slots before this instant, and skips that cover such slots." example:"2026-12-02T00:00:00Z"`
	View
	Paging
}

func (f RunFilters) filter() (runs.Filter, error) {
	labels, err := parseLabels(f.Label)
	filter := runs.Filter{
		Status: f.Status, Reason: f.Reason, Trigger: f.Trigger,
		Labels: labels, From: f.From.at, To: f.To.at, Page: f.page(),
	}
	if f.Late != "" {
		filter.Late = new(f.Late == "true")
	}
	if err == nil {
		filter.Workflow, err = optionalID("query.workflow_run", f.Workflow, "must be the id of a run")
	}
	return filter, err
}

type listRunsInput struct {
	Job   string `query:"job" maxLength:"128" doc:"Only runs of this job: its id or name. A deleted job is found by its id only."`
	JobID string `query:"job_id" format:"uuid" doc:"Only runs of the job with this id. The job may be deleted."`
	Cause string `query:"caused_by" format:"uuid" doc:"Only runs that this run or event triggered."`
	RunFilters
}

func (s *server) listRuns(ctx context.Context, tenant int32, in *listRunsInput) (*answer[List[ListedRun]], error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if filter.JobID, err = optionalID("query.job_id", in.JobID, "must be the id of a job"); err != nil {
		return nil, err
	}
	if id, err := parseID(in.Job); err == nil && filter.JobID == nil {
		filter.JobID = &id // as under /v1/jobs/{job}/runs: the job may be deleted
	} else {
		filter.Job = in.Job
	}
	if filter.Cause, err = optionalID("query.caused_by", in.Cause, "must be the id of a run or event"); err != nil {
		return nil, err
	}
	return s.answerRuns(ctx, tenant, filter, in.short())
}

type listJobRunsInput struct {
	JobRef
	RunFilters
}

func (s *server) listJobRuns(
	ctx context.Context, tenant int32, in *listJobRunsInput,
) (*answer[List[ListedRun]], error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	if id, err := parseID(in.Job); err == nil {
		filter.JobID = &id
	} else {
		filter.Job = in.Job
	}
	out, err := s.answerRuns(ctx, tenant, filter, in.short())
	if err == nil && len(out.Body.Data) == 0 && in.isID() {
		// No runs, or no such job? A job that was deleted before its first run counts as not found.
		_, err = s.Store.Jobs.GetJob(ctx, tenant, in.Job)
	}
	return out, err
}

func (s *server) answerRuns(
	ctx context.Context, tenant int32, filter runs.Filter, short bool,
) (*answer[List[ListedRun]], error) {
	records, next, err := s.Store.Runs.ListRuns(ctx, tenant, filter)
	if err == nil && !short {
		err = s.Store.Runs.FillCauses(ctx, tenant, records)
	}
	return listOf(records, next, err, func(r runs.Run) ListedRun { return ListedRun{r, short} })
}

// RerunInput is the optional body of a rerun.
type RerunInput struct {
	Body    json.RawMessage   `json:"body,omitempty" doc:"Sent in place of the body that the run sent. Absent: the run's own body; if it had none of its own, the job's."`
	Headers map[string]string `json:"headers,omitempty" doc:"Sent in place of the headers that the run sent. Absent: the run's own headers; if it had none of its own, the job's."`
	SameKey bool              `json:"same_key,omitempty" doc:"Send the webhook-id and Idempotency-Key of the original run. Not for a job with steps. A receiver that checks them then does the work only if it has not done it before." example:"false"`
	Chain   bool              `json:"chain,omitempty" doc:"Its end triggers the jobs in then." example:"false"`

	From       []string            `json:"from,omitempty" minItems:"1" maxItems:"50" doc:"Of a job with steps: these run again, with all that depend on them. The others are kept if they have succeeded and all that they depend on is kept, and run again otherwise. Absent, and set as well: all run again." example:"[\"load\"]"`
	Set        map[string]SetInput `json:"set,omitempty" doc:"Of a job with steps: these are not run, but taken as succeeded. The steps that depend on them run again. Absent: none."`
	Definition string              `json:"definition,omitempty" minLength:"1" enum:"current,original" default:"current" doc:"Of a job with steps. current: the job's definition now, which must have each step that is kept, with the same depends_on; original: the version that the run used." example:"current"`
	DryRun     bool                `json:"dry_run,omitempty" doc:"Of a job with steps: only say what becomes of each step; create nothing." example:"false"`
}

// SetInput says how a step is taken as succeeded.
type SetInput struct {
	Result json.RawMessage `json:"result,omitempty" doc:"Its result: any JSON, up to 64 KiB. Absent or null: none."`
	Note   string          `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read; shown with the step and in the audit log. Absent: none." example:"INC-12"`
}

// The definitions that a rerun may use.
const (
	DefinitionCurrent  = "current"
	DefinitionOriginal = "original"
)

func (r RerunInput) validate() []problem.FieldError {
	errors := api.Within("body", jobspec.ValidateRequest("", r.Headers, r.Body))
	errors = append(errors, oneOf("body.definition", r.Definition, DefinitionCurrent, DefinitionOriginal)...)
	if r.From != nil && (len(r.From) == 0 || len(r.From) > jobspec.MaxSteps) {
		errors = append(errors, problem.Atf("body.from", "must name 1 to %d steps", jobspec.MaxSteps))
	}
	for _, step := range slices.Sorted(maps.Keys(r.Set)) {
		at := "body.set." + problem.Clip(step)
		if _, wrong := domain.CheckResult(r.Set[step].Result); wrong != "" {
			errors = append(errors, problem.At(at+".result", wrong))
		}
		errors = append(errors, prose(at+".note", r.Set[step].Note, maxNote)...)
	}
	return errors
}

func (r RerunInput) request() jobs.RerunRequest {
	request := jobs.RerunRequest{
		TriggerRequest: jobs.TriggerRequest{Body: r.Body, Headers: r.Headers}, SameKey: r.SameKey, Chain: r.Chain,
		Original: r.Definition == DefinitionOriginal, Steps: domain.StepRerun{From: r.From},
	}
	for step, set := range r.Set {
		if request.Steps.Set == nil {
			request.Steps.Set = map[string]domain.SetStep{}
		}
		result, _ := domain.CheckResult(set.Result)
		request.Steps.Set[step] = domain.SetStep{Result: result, Note: set.Note}
	}
	return request
}

type rerunInput struct {
	RunRef
	Keyed[RerunInput]
}

func (s *server) rerunRun(ctx context.Context, tenant int32, in *rerunInput) (*answered, error) {
	v := in.Request.Value
	if err := in.Request.Check(v.validate()...); err != nil {
		return nil, err
	}
	if v.DryRun {
		return counted(s.Store.For(tenant).PlanRerun(ctx, in.Run.id, v.request()))
	}
	return accept(ctx, s, tenant, in.by(), atRun, func(w store.Writer) (runs.Run, error) {
		return w.RerunRun(ctx, in.Run.id, v.request())
	})
}
