package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/runs"
)

func (s *server) rerunRoute() {
	registerBody[RerunInput](s, huma.Operation{
		OperationID: "rerun-run", Method: http.MethodPost, Path: "/v1/runs/{run}/rerun", Tags: []string{tagRuns},
		Summary: "Rerun a run", DefaultStatus: http.StatusAccepted,
		Description: "Creates a new run from a run that has ended, with any outcome. The new run has the trigger manual " +
			"and the same slot, and uses the job's current definition. If the original run sent its own body or headers in " +
			"place of the job's, the new run sends them too, unless the body here replaces them. The target treats it as a " +
			"new run, unless same_key is set. The concurrency_policy applies as it does to a manual trigger.",
		Responses: s.rendered(http.StatusAccepted, exampleRerun),
		Errors:    []int{409},
	}, optional, exampleRerunInput, s.rerunRun)
}

// RerunInput is the optional body of a rerun.
type RerunInput struct {
	Body    json.RawMessage   `json:"body,omitempty" doc:"Sent in place of the body that the run sent. Absent: the run's own body; if it had none of its own, the job's."`
	Headers map[string]string `json:"headers,omitempty" doc:"Sent in place of the headers that the run sent. Absent: the run's own headers; if it had none of its own, the job's."`
	SameKey bool              `json:"same_key,omitempty" doc:"Send the webhook-id and Idempotency-Key of the original run. A receiver that checks them then does the work only if it has not done it before." example:"false"`
}

type rerunInput struct {
	Run string `path:"run" doc:"Id of the run." example:"019a3c5f-0000-8b21-8f6e-1d2c3b4a5968"`
	Idempotent
	Request body[RerunInput]
}

func (s *server) rerunRun(ctx context.Context, tenant int32, in *rerunInput) (*answered, error) {
	id, err := parseID(in.Run)
	if err != nil {
		return nil, err
	}
	v := in.Request.value
	request := jobs.RerunRequest{
		TriggerRequest: jobs.TriggerRequest{Body: v.Body, Headers: v.Headers}, SameKey: v.SameKey,
	}
	if err := in.Request.check(within("body", domain.ValidateRequest("", v.Headers, v.Body))...); err != nil {
		return nil, err
	}
	return accept(ctx, s, tenant, in.Request.under(in.Key), runPath, func(w store.Writer) (runs.Run, error) {
		return w.RerunRun(ctx, id, request)
	})
}
