package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/store"
	"punctual/store/jobs"
)

// BatchAnswer says what a batch wrote, in the order of the request.
type BatchAnswer struct {
	Data []BatchItem `json:"data" doc:"One item for each job of the request, in its order."`
}

// BatchItem is the result for one job of a batch.
type BatchItem struct {
	ID   uuid.UUID `json:"id" format:"uuid" doc:"The job's id." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Name string    `json:"name" doc:"The job's name." example:"daily-invoice-gen"`

	Result jobs.BatchOutcome `json:"result" enum:"created,replaced,unchanged,skipped" doc:"The result for the job. unchanged: the existing job has the same definition already. skipped: the name is taken, and the existing job stays as it is." example:"created"`
}

func (s *server) batchRoutes() {
	api.RegisterBody[BatchInput](s.api, api.Operation{
		ID: "create-jobs", Route: "POST /v1/jobs/batch", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Create up to 1,000 jobs", Status: http.StatusCreated, MaxBody: maxBatchBody, Errors: []int{409},
		Responses: api.Rendered[BatchAnswer](s.api, http.StatusCreated),
		Description: "In one transaction: all jobs are written, or none. Errors give the index: " +
			"body.jobs[3].schedule.cron. The response says for each job whether it was created, replaced, unchanged or " +
			"skipped. A submitter creates one-shots only (at, delay), and replaces nothing.",
	}, api.Required, s.createJobs)
}

type createJobsInput struct {
	Idempotent
	Request body.Body[BatchInput]
}

func (s *server) createJobs(ctx context.Context, tenant int32, in *createJobsInput) (*answered, error) {
	batch := in.Request.Value
	problems := batch.validate()
	for i, job := range batch.Jobs {
		problems = append(problems, s.forbidden(tenant, fmt.Sprintf("body.jobs[%d]", i), job.Definition)...)
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	if err := mayWrite(ctx, batch); err != nil {
		return nil, err
	}
	if batch.OnConflict == "" {
		batch.OnConflict = jobs.ConflictError
	}
	jobs := make([]jobs.NewJob, len(batch.Jobs))
	for i, job := range batch.Jobs {
		jobs[i] = submitted(ctx, job).newJob()
	}
	by := under(in.Key, &in.Request)
	out, _, err := once(ctx, s, tenant, by, http.StatusCreated, func(w store.Writer) (BatchAnswer, error) {
		results, err := w.CreateJobs(ctx, jobs, batch.OnConflict)
		written := BatchAnswer{Data: make([]BatchItem, len(results))}
		for i, r := range results {
			written.Data[i] = BatchItem(r)
		}
		return written, err
	})
	return out, err
}
