package httpapi

import (
	"context"
	"errors"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
)

func (s *server) jobWriteRoutes() {
	api.RegisterBody[JobReplacement](s.api, api.Operation{
		ID: "put-job", Route: "PUT /v1/jobs/{job}", Role: auth.RoleEditor, Tag: tagJobs, Summary: "Create or replace a job",
		Errors:   []int{412},
		Conflict: jobs.ErrNameTaken,
		Codes:    []problem.Code{problem.CodeLimit, problem.CodeCronMismatch},
		Asks:     exampleWorkflow,
		Description: "By name, creates the job or replaces its definition; by id, replaces it. If nothing changes, nothing " +
			"is written. Without paused, a paused job stays paused. The response of a GET can be sent back: fields that the " +
			"server sets are ignored, and *** keeps the stored secret. To write only if no other caller has changed the job " +
			"since, send If-Match.",
	}, api.Required, s.putJob)
	api.RegisterBody[JobPatch](s.api, api.Operation{
		ID: "patch-job", Route: "PATCH /v1/jobs/{job}", Role: auth.RoleEditor, Tag: tagJobs, Summary: "Change a job",
		Errors:   []int{412},
		Conflict: jobs.ErrNameTaken,
		Codes:    []problem.Code{problem.CodeLimit, problem.CodeCronMismatch},
		Asks:     `{"timeout":"15m","labels":{"team":null},"retry":{"max_attempts":5}}`,
		Description: "A JSON merge patch (RFC 7396) on the definition as it was written: absent fields stay, and null " +
			"restores a default. A schedule of another kind replaces the current schedule. A new name renames the job. steps are " +
			"replaced as a whole; *** keeps the secret that the step with this name has.",
	}, api.Required, s.patchJob)
}

type putJobInput struct {
	JobRef
	IfMatch
	IfNoneMatch string `header:"If-None-Match" enum:"*" doc:"With *, the job is only created. If it exists already, the response is 412."`
	Request     body.Body[JobReplacement]
}

// Exists never refuses: a PUT may create the job, and says what is wrong with its name.
func (putJobInput) Exists() error { return nil }

func (s *server) putJob(ctx context.Context, tenant int32, in *putJobInput) (*jobAnswer, error) {
	job := in.Request.Value.newJob()
	named := job.Definition.Name != ""
	var problems []problem.FieldError
	switch {
	case in.isID() && !named:
		job.Definition.Name = placeholderName
	case !named:
		job.Definition.Name = in.Job
	case !in.isID() && job.Definition.Name != in.Job:
		problems = append(problems,
			problem.At("body.name", "is not the name in the path; leave it out, or rename the job with PATCH"))
	}
	for _, e := range api.Within("body", job.Definition.Validate()) {
		if !named && e.Location == "body.name" {
			e.Location = "path.job"
		}
		problems = append(problems, e)
	}
	problems = append(problems, s.forbidden(tenant, "body", job.Definition)...)
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	createOnly := in.IfNoneMatch == "*"
	if in.isID() || in.any() {
		return s.replaceJob(ctx, tenant, in, job, named, version, createOnly)
	}
	record, created, err := s.Store.Jobs.PutJob(ctx, tenant, in.Job, job, version, createOnly)
	out, err := s.answerJob(record, err)
	if err == nil && created {
		out.Status, out.Location = http.StatusCreated, jobPath(record.ID)
	}
	return out, err
}

// placeholderName is a valid name for a definition that gets its real name later.
const placeholderName = "unnamed"

// replaceJob is a PUT that cannot create a job: its path is an id, or its condition is that the job exists.
func (s *server) replaceJob(
	ctx context.Context, tenant int32, in *putJobInput, job jobs.NewJob, named bool, version *int32, createOnly bool,
) (*jobAnswer, error) {
	record, err := s.Store.Jobs.EditJob(ctx, tenant, in.Job, version, func(now jobs.Record) (jobs.NewJob, error) {
		if createOnly {
			return jobs.NewJob{}, problem.New(problem.CodeVersion,
				"The job exists, and If-None-Match requires that it does not.")
		}
		if !named {
			job.Definition.Name = now.Definition.Name
		}
		return job, nil
	})
	if errors.Is(err, store.ErrNotFound) && in.any() {
		return nil, problem.New(problem.CodeVersion, "The job does not exist, and If-Match requires that it does.")
	}
	return s.answerJob(record, err)
}

// JobPatch is a merge patch on a job: any part of JobInput.
type JobPatch struct{ JobInput }

type patchJobInput struct {
	JobRef
	IfMatch
	Request body.Body[JobPatch]
}

func (s *server) patchJob(ctx context.Context, tenant int32, in *patchJobInput) (*jobAnswer, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	return s.answerJob(s.Store.Jobs.EditJob(ctx, tenant, in.Job, version, func(now jobs.Record) (jobs.NewJob, error) {
		job, err := applyPatch(&in.Request, now.Definition)
		if fields := s.forbidden(tenant, "body", in.Request.Value.Definition); err == nil && len(fields) > 0 {
			err = problem.Invalid(fields...) // only for URLs that the patch sets: the rules may have changed since
		}
		return job, err
	}))
}

// applyPatch returns the job that results from a patch on a definition, or everything that is wrong with it.
func applyPatch(patch *body.Body[JobPatch], now jobspec.Definition) (jobs.NewJob, error) {
	now.Schedule = now.Schedule.Onto(patch.Value.Schedule)
	var job JobInput
	if err := patch.Onto(now, &job); err != nil {
		return jobs.NewJob{}, err
	}
	if patch.Value.Target.Body == nil && job.Target.Body != nil {
		job.Target.Body = now.Target.Body // merging reformatted it, and a body keeps its bytes
	}
	if patch.Value.Steps != nil { // they are replaced as a whole, so the patch may show secrets as a GET does
		d := jobspec.Definition{Steps: patch.Value.Steps}
		keepMasked(&d)
		job.Steps = d.Steps
	} else if job.Steps != nil {
		job.Steps = now.Steps
	}
	if err := patch.Check(api.Within("body", job.Validate())...); err != nil {
		return jobs.NewJob{}, err
	}
	return job.newJob(), nil
}
