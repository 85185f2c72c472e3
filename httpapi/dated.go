package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Triggered describes the answer to a trigger: a Run or a Dated.
type Triggered struct {
	runs.Run
	Key      string    `json:"key" doc:"Of a dated run only: its key, which is the request's or one that the server made." example:"order-42"`
	Pending  uuid.UUID `json:"run" format:"uuid" doc:"Of a dated run only: the id that the run will have. Another one when it is moved."`
	Created  bool      `json:"created" doc:"Of a dated run only. false: a run with the key was pending."`
	Replaced bool      `json:"replaced" doc:"Of a dated run only: whether a pending run was moved."`
	Outdated bool      `json:"outdated" doc:"true: nothing was written: a dated run with the key and a sequence as high left in the last day."`
}

// TransformSchema says that an answer has some of the fields.
func (Triggered) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Required = []string{"due_at"}
	return s
}

// TriggerBatchAnswer says what a batch of triggers did.
type TriggerBatchAnswer struct {
	Data []jobs.Dated `json:"data" doc:"One item for each item of the request, in its order."`
}

func (s *server) datedRoutes() {
	api.RegisterBody[TriggerBatchInput](s.api, api.Operation{
		ID: "trigger-batch", Route: "POST /v1/jobs/{job}/trigger/batch", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Trigger a job up to 1,000 times", Status: http.StatusAccepted, MaxBody: maxBatchBody,
		Responses: api.Rendered[TriggerBatchAnswer](s.api, http.StatusAccepted),
		Conflict: problem.New(problem.CodeKeyPending,
			`The key "order-42" is the key of a pending run, which is due at 2026-12-01T16:00:00Z.`),
		Asks: `{"items":[` +
			`{"delay":"1h","key":"order-42","on_conflict":"replace","body":{"order":42}},{"at":"2026-12-01T16:00:00Z"}]}`,
		Description: "Writes dated runs in one transaction: all, or none. Errors give the index: body.items[3].delay. An " +
			"item without at and delay is due now.",
	}, api.Required, s.triggerBatch)
	api.Register(s.api, api.Operation{
		ID: "list-dated-runs", Route: "GET /v1/jobs/{job}/dated", Role: auth.RoleViewer, Tag: tagJobs,
		Summary: "List the dated runs of a job",
		Description: "Those that are pending, the soonest first. A dated run leaves the list when it is claimed; then it " +
			"is in the list of runs.",
	}, s.listDated)
	api.Register(s.api, api.Operation{
		ID: "get-dated-run", Route: "GET /v1/jobs/{job}/dated/{key}", Role: auth.RoleViewer, Tag: tagJobs,
		Summary: "Get a dated run", Description: "While it is pending. From its claim on, it is found as a run, by its id.",
	}, s.getDated)
	api.RegisterBody[MoveInput](s.api, api.Operation{
		ID: "move-dated-run", Route: "PATCH /v1/jobs/{job}/dated/{key}", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Move a dated run",
		Asks:    `{"delay":"2h"}`,
		Answers: []string{`{"created":false,"replaced":true}`},
		Description: "To another instant, while it is pending: absent fields stay, and so do its body and headers. It " +
			"moves no further than its latest_at. After its claim the response is 404. The audit log keeps the move. A " +
			"submitter may move only runs of jobs that submitters may trigger.",
	}, api.Required, s.moveDated)
	api.Register(s.api, api.Operation{
		ID: "cancel-dated-run", Route: "DELETE /v1/jobs/{job}/dated/{key}", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Cancel a dated run",
		Description: "While it is pending. After its claim the response is 404; then cancel the run by its id. The audit " +
			"log keeps the cancel. A submitter may cancel only runs of jobs that submitters may trigger.",
	}, s.cancelDated)
}

func (s *server) triggerBatch(
	ctx context.Context, tenant int32, in *triggerInput[TriggerBatchInput],
) (*answered, error) {
	if err := in.Request.Check(in.Request.Value.validate()...); err != nil {
		return nil, err
	}
	requests := pg.Column(in.Request.Value.Items, func(item TriggerInput) jobs.DateRequest {
		return item.dateRequest(ctx, in.parent())
	})
	out, _, err := once(ctx, s, tenant, in.by(), http.StatusAccepted, func(w store.Writer) (TriggerBatchAnswer, error) {
		written, err := w.TriggerBatch(ctx, in.Job, requests)
		return TriggerBatchAnswer{written}, err
	})
	return out, err
}

type listDatedInput struct {
	JobRef
	From instantParam `query:"from" doc:"Only runs that are due at or after this instant." example:"2026-12-01T00:00:00Z"`
	To   instantParam `query:"to" doc:"Only runs that are due before this instant." example:"2026-12-02T00:00:00Z"`
	Paging
}

func (s *server) listDated(
	ctx context.Context, tenant int32, in *listDatedInput,
) (*answer[List[jobs.DatedRun]], error) {
	found, next, err := s.Store.Jobs.ListDated(ctx, tenant, in.Job,
		jobs.DatedRange{From: in.From.at, To: in.To.at, Page: in.page()})
	if err == nil && len(found) == 0 && in.isID() { // none, or no such job?
		_, err = s.Store.Jobs.GetJob(ctx, tenant, in.Job)
	}
	return pageOf(found, next, err)
}

// DatedRef is the input of operations on one dated run.
type DatedRef struct {
	JobRef
	DatedKey string `path:"key" doc:"Its key, percent-encoded: a slash is %2F." example:"order-42"`
}

// Exists returns ErrNotFound for a malformed id, name or key.
func (d DatedRef) Exists() error {
	if domain.KeyFault(d.DatedKey) != "" {
		return store.ErrNotFound
	}
	return d.JobRef.Exists()
}

// NotFound implements api.Named.
func (DatedRef) NotFound() string {
	return "There is no job with that id or name, or no run with that key is pending; it may have been claimed."
}

func (s *server) getDated(ctx context.Context, tenant int32, in *DatedRef) (*answer[jobs.DatedRun], error) {
	return show(s.Store.Jobs.GetDated(ctx, tenant, in.Job, in.DatedKey))
}

type moveDatedInput struct {
	DatedRef
	Request body.Body[MoveInput]
}

func (s *server) moveDated(ctx context.Context, tenant int32, in *moveDatedInput) (*answer[jobs.Dated], error) {
	move := in.Request.Value.trigger(in.DatedKey)
	if err := in.Request.Check(api.Within("body", in.Request.Value.problems())...); err != nil {
		return nil, err
	}
	return show(s.Store.Jobs.MoveDated(ctx, tenant, in.Job, move.dateRequest(ctx, "")))
}

func (s *server) cancelDated(ctx context.Context, tenant int32, in *DatedRef) (*struct{}, error) {
	_, err := s.Store.Jobs.CancelDated(ctx, tenant, in.Job, in.DatedKey, isSubmitter(ctx))
	return nil, err
}
