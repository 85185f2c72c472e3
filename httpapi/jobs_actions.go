package httpapi

import (
	"context"
	"net/http"
	"net/url"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/links"
	"punctual/store/runs"
)

func (s *server) jobActionRoutes() {
	api.RegisterBody[TriggerInput](s.api, api.Operation{
		ID: "trigger-job", Route: "POST /v1/jobs/{job}/trigger", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Trigger a job now or later", Status: http.StatusAccepted,
		Responses: api.Rendered[Triggered](s.api, http.StatusAccepted),
		Conflict:  &jobs.ActiveRunError{Run: exampleRunID, Policy: jobspec.PolicyForbid},
		Codes:     []problem.Code{problem.CodeKeyPending, problem.CodeState, problem.CodeLimit},
		Asks:      `{"body":{"range":"2026-11-30"}}`,
		Answers:   []string{examplePending},
		Description: "With only body and headers, or with nothing, it creates a run now, and the response has the fields " +
			"of a Run. With any other field, it writes a dated run, which is pending until it is claimed at its instant, and the " +
			"response has the fields key, run, due_at, created and replaced. A dated run uses the job's definition at its " +
			"claim. It waits while the job is paused, and the missed policy and the limits apply as to a slot. Under forbid " +
			"and wait it is not skipped: it waits for its turn. A run now is created in addition to the schedule, even if the job is paused. Under concurrency_policy " +
			"replace, the run cancels the active run; under wait, it waits for the active run. The response is 409 and names " +
			"the run that is in the way: under forbid, if a run is active; under wait, if another run already waits. If such " +
			"a run begins after the response, the new run ends as skipped, with the reason overlap.",
	}, api.Optional, s.triggerJob)
	api.RegisterBody[PauseInput](s.api, api.Operation{
		ID: "pause-job", Route: "POST /v1/jobs/{job}/pause", Role: auth.RoleEditor, Tag: tagJobs, Summary: "Pause a job",
		Conflict: stateConflict(`Job "daily-invoice-gen" is completed and has no slot to pause`),
		Answers: []string{`{"state":"paused","paused":true,"paused_at":"2026-11-28T18:00:00.5Z",
			"paused_until":"2026-12-01T09:00:00Z","paused_by":"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)",
			"pause_note":"the warehouse moves","next_run_at":null,"next_scheduled_for":null,"next_local":null}`},
		Description: "Slots that pass during the pause become one recorded skip. A one-shot that is due during the pause " +
			"fires on resume. Runs in flight continue, and the job can be triggered.",
	}, api.Optional, s.pauseJob)
	api.RegisterBody[ResumeInput](s.api, api.Operation{
		ID: "resume-job", Route: "POST /v1/jobs/{job}/resume", Role: auth.RoleEditor, Tag: tagJobs, Summary: "Resume a job",
		Conflict: stateConflict(`Job "daily-invoice-gen" is completed and cannot be resumed`),
	}, api.Optional, s.resumeJob)
	api.Register(s.api, api.Operation{
		ID: "delete-job", Route: "DELETE /v1/jobs/{job}", Role: auth.RoleEditor, Tag: tagJobs, Summary: "Delete a job",
		Errors:   []int{412},
		Conflict: links.Needed("daily-invoice-gen", []links.Upstream{{Job: "nightly-export"}}),
		Description: "Stops future slots and cancels pending runs; the history stays. If runs of other jobs trigger it, " +
			"the response is 409, unless force is set.",
	}, s.deleteJob)
}

func (s *server) pauseJob(ctx context.Context, tenant int32, in *jobInput[PauseInput]) (*jobAnswer, error) {
	pause := in.Request.Value
	if err := in.Request.Check(pause.validate()...); err != nil {
		return nil, err
	}
	until, err := s.future(ctx, pause.Until)
	if err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.Jobs.PauseJob(ctx, tenant, in.Job, pause.Note, until))
}

func (s *server) resumeJob(ctx context.Context, tenant int32, in *jobInput[ResumeInput]) (*jobAnswer, error) {
	if err := in.Request.Check(note(in.Request.Value.Note)...); err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.Jobs.ResumeJob(ctx, tenant, in.Job, in.Request.Value.Note))
}

func (s *server) triggerJob(ctx context.Context, tenant int32, in *triggerInput[TriggerInput]) (*answered, error) {
	asked := in.Request.Value
	if err := in.Request.Check(api.Within("body", asked.problems())...); err != nil {
		return nil, err
	}
	if asked.dated() {
		at := func(d jobs.Dated) string {
			return "/v1/jobs/" + url.PathEscape(in.Job) + "/dated/" + url.PathEscape(d.Key)
		}
		return accept(ctx, s, tenant, in.by(), at, func(w store.Writer) (jobs.Dated, error) {
			return w.TriggerAt(ctx, in.Job, asked.dateRequest(ctx, in.parent()))
		})
	}
	return accept(ctx, s, tenant, in.by(), atRun, func(w store.Writer) (runs.Run, error) {
		return w.TriggerJob(ctx, in.Job, asked.request(ctx, in.parent()))
	})
}
