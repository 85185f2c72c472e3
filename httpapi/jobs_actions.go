package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/store"
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
		Summary: "Trigger a job now or later", DefaultStatus: http.StatusAccepted,
		Description: "With only body and headers, or with nothing, it creates a run now, and the response has the fields " +
			"of a Run. With any other field, it writes a dated run, which is pending until it is claimed at its instant, and the " +
			"response has the fields key, run, due_at, created and replaced. A dated run uses the job's definition at its " +
			"claim. It waits while the job is paused, and the concurrency_policy, the missed policy and the limits apply as " +
			"to a slot. A run now is created in addition to the schedule, even if the job is paused. Under concurrency_policy " +
			"replace, the run cancels the active run; under wait, it waits for the active run. The response is 409 and names " +
			"the run that is in the way: under forbid, if a run is active; under wait, if another run already waits. If such " +
			"a run begins after the response, the new run ends as skipped, with the reason overlap.",
		Responses: api.Rendered[Triggered](s.api, http.StatusAccepted),
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
	Traced
	Request body.Body[TriggerInput]
}

func (s *server) triggerJob(ctx context.Context, tenant int32, in *triggerJobInput) (*answered, error) {
	asked := in.Request.Value
	if err := in.Request.Check(api.Within("body", asked.problems())...); err != nil {
		return nil, err
	}
	by := under(in.Key, &in.Request)
	if asked.dated() {
		at := func(d Dated) string { return datedPath(in.Job, d.Key) }
		return accept(ctx, s, tenant, by, at, func(w store.Writer) (Dated, error) {
			written, err := w.TriggerAt(ctx, in.Job, asked.dateRequest(ctx, in.parent()))
			return Dated(written), err
		})
	}
	return accept(ctx, s, tenant, by, atRun, func(w store.Writer) (runs.Run, error) {
		return w.TriggerJob(ctx, in.Job, asked.request(ctx, in.parent()))
	})
}
