package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// BatchAnswer says what a batch wrote, in the order of the request.
type BatchAnswer struct {
	Data []jobs.BatchItem `json:"data" doc:"One item for each job of the request, in its order."`
}

func (s *server) batchRoutes() {
	api.RegisterBody[BatchInput](s.api, api.Operation{
		ID: "create-jobs", Route: "POST /v1/jobs/batch", Role: auth.RoleSubmitter, Tag: tagJobs,
		Summary: "Create up to 1,000 jobs", Status: http.StatusCreated, MaxBody: maxBatchBody,
		Responses: api.Rendered[BatchAnswer](s.api, http.StatusCreated),
		Conflict:  jobs.ErrNameTaken,
		Codes:     []problem.Code{problem.CodeLimit, problem.CodeCronMismatch},
		Lacks:     []string{"Location", "ETag"}, // each of the jobs has its own
		Asks:      exampleBatch,
		Description: "In one transaction: all jobs are written, or none. Errors give the index: " +
			"body.jobs[3].schedule.cron. The response says for each job whether it was created, replaced, unchanged or " +
			"skipped. A submitter creates one-shots only (at, delay), and replaces nothing.",
	}, api.Required, s.createJobs)
}

func (s *server) createJobs(ctx context.Context, tenant int32, in *Keyed[BatchInput]) (*answered, error) {
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
	made := pg.Column(batch.Jobs, func(job JobInput) jobs.NewJob { return submitted(ctx, job).newJob() })
	out, _, err := once(ctx, s, tenant, in.by(), http.StatusCreated, func(w store.Writer) (BatchAnswer, error) {
		written, err := w.CreateJobs(ctx, made, batch.OnConflict)
		return BatchAnswer{written}, err
	})
	return out, err
}
