package httpapi

import (
	"context"
	"errors"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
)

func (s *server) versionRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-versions", Route: "GET /v1/jobs/{job}/versions", Role: auth.RoleViewer, Tag: tagJobs,
		Summary: "List the versions of a job",
		Description: "Each change of the definition, each pause and each resume creates a version. Newest first. A former " +
			"version is kept as long as runs are, and while one of them names it. By id, this also works for a deleted job. A " +
			"page of large definitions ends before `limit`, after 4 MiB.",
	}, s.listVersions)
	api.Register(s.api, api.Operation{
		ID: "get-version", Route: "GET /v1/jobs/{job}/versions/{version}", Role: auth.RoleViewer, Tag: tagJobs,
		Summary:     "Get a version of a job",
		Description: "With its definition and, if against names another version, how the two differ.",
	}, s.getVersion)
	api.Register(s.api, api.Operation{
		ID: "restore-version", Route: "POST /v1/jobs/{job}/versions/{version}/restore", Role: auth.RoleEditor, Tag: tagJobs,
		Summary: "Restore a version of a job", Errors: []int{412, 422},
		Conflict: stateConflict(`Job "daily-invoice-gen": give its body again: it was sealed with another key`),
		Codes:    []problem.Code{problem.CodeCronMismatch},
		Description: "Writes the version's definition as the job's next version, by the rules and limits of a PUT now. The " +
			"job keeps its name, and stays paused or active. If nothing differs, nothing is written. To restore only if no " +
			"other caller has changed the job since, send If-Match.",
	}, s.restoreVersion)
	api.Register(s.api, api.Operation{
		ID: "list-job-changes", Route: "GET /v1/jobs/{job}/changes", Role: auth.RoleViewer, Tag: tagJobs,
		Summary: "List the changes of a job",
		Past:    true,
		Description: "Who changed the job, its runs and its dead letters, what and when: the part of the audit log that is " +
			"about the job, without addresses. Newest first. By id, this also works for a deleted job.",
	}, s.listJobChanges)
}

type jobPageInput struct {
	JobRef
	Paging
}

func (s *server) listJobChanges(
	ctx context.Context, tenant int32, in *jobPageInput,
) (*answer[List[audit.JobChange]], error) {
	id, err := s.Store.Jobs.FindJob(ctx, tenant, in.Job)
	if err != nil {
		return nil, err
	}
	entries, next, err := s.changes(ctx, tenant, audit.Filter{Job: id.String(), Page: in.page()})
	return listOf(entries, next, err, func(e audit.Entry) audit.JobChange { return e.JobChange })
}

func (s *server) listVersions(
	ctx context.Context, tenant int32, in *jobPageInput,
) (*answer[List[jobs.Version]], error) {
	return pageOf(s.Store.Jobs.ListVersions(ctx, tenant, in.Job, in.page()))
}

// VersionRef is the input of operations on one version of a job.
type VersionRef struct {
	JobRef
	Version int32 `path:"version" minimum:"1" doc:"Number of the version." example:"6"`
}

// NotFound implements api.Named.
func (VersionRef) NotFound() string {
	return "There is no job with that id or name, or it has no such version; old versions are kept as long as runs."
}

type getVersionInput struct {
	VersionRef
	Against int32 `query:"against" minimum:"1" doc:"Number of another version of the job, to compare with." example:"7"`
}

func (s *server) getVersion(
	ctx context.Context, tenant int32, in *getVersionInput,
) (*answer[jobs.WholeVersion], error) {
	return show(s.Store.Jobs.GetVersion(ctx, tenant, in.Job, in.Version, in.Against))
}

type restoreVersionInput struct {
	VersionRef
	IfMatch
}

func (s *server) restoreVersion(ctx context.Context, tenant int32, in *restoreVersionInput) (*jobAnswer, error) {
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	record, err := s.Store.Jobs.RestoreVersion(ctx, tenant, in.Job, in.Version, version, func(d jobspec.Definition) error {
		fields := append(api.Within("definition", d.Validate()), s.forbidden(tenant, "definition", d)...)
		if len(fields) > 0 {
			return problem.Invalid(fields...)
		}
		return nil
	})
	if _, refused := errors.AsType[*jobspec.Refusal](err); !refused && len(jobspec.BlamesOf(err)) > 0 {
		return nil, problem.Invalid(api.Within("definition", jobspec.BlamesOf(err))...)
	}
	return s.answerJob(record, err)
}
