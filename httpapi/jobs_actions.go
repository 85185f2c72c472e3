package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
)

func (s *server) jobActionRoutes() {
	api.RegisterBody[PauseInput](s.api, huma.Operation{
		OperationID: "pause-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/pause", Tags: []string{tagJobs},
		Summary: "Pause a job",
		Description: "Slots that pass during the pause become one recorded skip. A one-shot that is due during the pause " +
			"fires on resume. Runs in flight continue, and the job can be triggered.",
		Errors: []int{409},
	}, api.Optional, s.pauseJob)

	api.RegisterBody[ResumeInput](s.api, huma.Operation{
		OperationID: "resume-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/resume", Tags: []string{tagJobs},
		Summary: "Resume a job", Errors: []int{409},
	}, api.Optional, s.resumeJob)

	api.RegisterBody[TriggerInput](s.api, huma.Operation{
		OperationID: "trigger-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/trigger", Tags: []string{tagJobs},
		Summary: "Trigger a job now", DefaultStatus: http.StatusAccepted,
		Description: "Creates a run in addition to the schedule, even if the job is paused. Under concurrency_policy " +
			"replace, the run cancels the active run; under wait, it waits for the active run. The response is 409 and names " +
			"the run that is in the way: under forbid, if a run is active; under wait, if another run already waits. If such a " +
			"run begins after the response, the new run ends as skipped, with the reason overlap.",
		Responses: api.Rendered[runs.Run](s.api, http.StatusAccepted),
		Errors:    []int{409},
	}, api.Optional, s.triggerJob)
}

type pauseJobInput struct {
	JobRef
	Request body.Body[PauseInput]
}

func (s *server) pauseJob(ctx context.Context, tenant int32, in *pauseJobInput) (*jobAnswer, error) {
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

type resumeJobInput struct {
	JobRef
	Request body.Body[ResumeInput]
}

func (s *server) resumeJob(ctx context.Context, tenant int32, in *resumeJobInput) (*jobAnswer, error) {
	if err := in.Request.Check(note(in.Request.Value.Note)...); err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.Jobs.ResumeJob(ctx, tenant, in.Job, in.Request.Value.Note))
}

type triggerJobInput struct {
	JobRef
	Idempotent
	Request body.Body[TriggerInput]
}

func (s *server) triggerJob(ctx context.Context, tenant int32, in *triggerJobInput) (*answered, error) {
	request := jobs.TriggerRequest{
		Body: in.Request.Value.Body, Headers: in.Request.Value.Headers, Submitter: isSubmitter(ctx),
	}
	if err := in.Request.Check(api.Within("body",
		domain.ValidateRequest("", request.Headers, request.Body))...); err != nil {
		return nil, err
	}
	return accept(ctx, s, tenant, under(in.Key, &in.Request), atRun, func(w store.Writer) (runs.Run, error) {
		return w.TriggerJob(ctx, in.Job, request)
	})
}
