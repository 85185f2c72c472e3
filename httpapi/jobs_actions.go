package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
)

func (s *server) jobActionRoutes() {
	registerBody[PauseInput](s, huma.Operation{
		OperationID: "pause-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/pause", Tags: []string{tagJobs},
		Summary: "Pause a job",
		Description: "Slots that pass during the pause become one recorded skip. A one-shot that is due during the pause " +
			"fires on resume. Runs in flight continue, and the job can be triggered.",
		Errors: []int{409},
	}, optional, examplePause, s.pauseJob)

	registerBody[ResumeInput](s, huma.Operation{
		OperationID: "resume-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/resume", Tags: []string{tagJobs},
		Summary: "Resume a job", Errors: []int{409},
	}, optional, exampleResume, s.resumeJob)

	registerBody[TriggerInput](s, huma.Operation{
		OperationID: "trigger-job", Method: http.MethodPost, Path: "/v1/jobs/{job}/trigger", Tags: []string{tagJobs},
		Summary: "Trigger a job now", DefaultStatus: http.StatusAccepted,
		Description: "Creates a run in addition to the schedule, even if the job is paused. Under concurrency_policy " +
			"replace, the run cancels the active run; under wait, it waits for the active run. The response is 409 and names " +
			"the run that is in the way: under forbid, if a run is active; under wait, if another run already waits.",
		Responses: s.rendered(http.StatusAccepted, examplePendingRun),
		Errors:    []int{409},
	}, optional, exampleTrigger, s.triggerJob)
}

type pauseJobInput struct {
	JobRef
	Request body[PauseInput]
}

func (s *server) pauseJob(ctx context.Context, tenant int32, in *pauseJobInput) (*jobAnswer, error) {
	pause := in.Request.value
	if err := in.Request.check(pause.validate()...); err != nil {
		return nil, err
	}
	until, err := s.future(ctx, pause.Until)
	if err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.PauseJob(ctx, tenant, in.Job, pause.Note, until))
}

type resumeJobInput struct {
	JobRef
	Request body[ResumeInput]
}

func (s *server) resumeJob(ctx context.Context, tenant int32, in *resumeJobInput) (*jobAnswer, error) {
	if err := in.Request.check(note(in.Request.value.Note)...); err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.ResumeJob(ctx, tenant, in.Job, in.Request.value.Note))
}

type triggerJobInput struct {
	JobRef
	Idempotent
	Request body[TriggerInput]
}

func (s *server) triggerJob(ctx context.Context, tenant int32, in *triggerJobInput) (*answered, error) {
	request := jobs.TriggerRequest{
		Body: in.Request.value.Body, Headers: in.Request.value.Headers, Submitter: isSubmitter(ctx),
	}
	if err := in.Request.check(within("body",
		domain.ValidateRequest("", request.Headers, request.Body))...); err != nil {
		return nil, err
	}
	return accept(ctx, s, tenant, in.Request.under(in.Key), runPath, func(w store.Writer) (runs.Run, error) {
		return w.TriggerJob(ctx, in.Job, request)
	})
}
