package httpapi

import (
	"context"
	"errors"
	"regexp"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/tenants"
)

func (s *server) auditRoutes() {
	api.Register(s.api, api.Operation{
		ID: "list-audit-log", Route: "GET /v1/audit-log", Role: auth.RoleAdmin, Tag: tagAudit,
		Summary: "List the audit log",
		Past:    true,
		Description: "Who changed what and when, and its state before and after. Newest first. All filters must match. " +
			"Each change is written together with its entry or not at all, and entries are never changed. Runs that schedules " +
			"start are not listed here: see the runs. Secrets are shown as ***. A page of large definitions ends before " +
			"`limit`, after 4 MiB.",
	}, s.listAudit)
}

type listAuditInput struct {
	Action     string       `query:"action" enum:"job.create,job.update,job.pause,job.resume,job.delete,job.restore,job.backfill,run.trigger,run.cancel,run.move,run.approve,run.reject,dead_letter.replay,dead_letter.resolve,operation.create,operation.cancel,api_key.create,api_key.revoke,tenant.create,tenant.update,tenant.delete,secret.put,secret.delete,secret.rotate,signing_secret.create,signing_secret.delete,limit.put,limit.delete,deployment.freeze,deployment.unfreeze,deployment.adopt,tenant.freeze,tenant.unfreeze,tenant.grant,tenant.revoke,breaker.reset,set_aside.retry,set_aside.drop" doc:"Only changes with this action."`
	Actor      string       `query:"actor" maxLength:"256" doc:"Only changes by this actor: the id or name of a key, the subject of a token, or a login."`
	Key        string       `query:"key" maxLength:"128" doc:"Only changes made with this API key, which may be revoked: its prefix, never the whole key." example:"punctual_5f0e8b110c6d9a44"`
	Resource   string       `query:"resource" enum:"job,run,dead_letter,operation,api_key,tenant,secret,signing_secret,limit,deployment,breaker,set_aside" doc:"Only changes to this kind of resource."`
	ResourceID string       `query:"resource_id" format:"uuid" doc:"Only changes to the resource with this id."`
	Name       string       `query:"name" maxLength:"128" doc:"Only changes to resources that had this name at that time."`
	Job        string       `query:"job" maxLength:"128" doc:"Only changes to this job, its runs and its dead letters: the job's id or name. The job may be deleted."`
	From       instantParam `query:"from" doc:"Only changes at or after this instant." example:"2026-12-01T00:00:00Z"`
	To         instantParam `query:"to" doc:"Only changes before this instant." example:"2026-12-02T00:00:00Z"`
	Paging
}

func (s *server) listAudit(ctx context.Context, tenant int32, in *listAuditInput) (*answer[List[audit.Entry]], error) {
	filter := audit.Filter{
		Action: audit.Action(in.Action), Actor: in.Actor, Resource: in.Resource, Name: in.Name, Job: in.Job, Page: in.page(),
	}
	if in.From.at != nil {
		filter.From = *in.From.at
	}
	if in.To.at != nil {
		filter.To = *in.To.at
	}
	var err error
	if filter.ResourceID, err = optionalID("query.resource_id", in.ResourceID, "must be an id"); err != nil {
		return nil, err
	}
	if in.Key != "" {
		if err := s.ofKey(ctx, tenant, in.Key, &filter); err != nil {
			return nil, err
		}
	}
	return pageOf(s.changes(ctx, tenant, filter))
}

// changes lists entries of the audit log, with the present names of the jobs that definitions name.
func (s *server) changes(ctx context.Context, tenant int32, f audit.Filter) ([]audit.Entry, string, error) {
	entries, next, err := s.Store.Audit.List(ctx, tenant, f)
	if err == nil {
		err = s.Store.Jobs.NameLinks(ctx, tenant, entries)
	}
	return entries, next, err
}

var keyPrefixForm = regexp.MustCompile(`^(punctual_)?[0-9a-f]{16}$`)

// ofKey narrows a filter to the changes made with a key. A key of another tenant, with which an operator has acted for
// this one, is known to operators only.
func (s *server) ofKey(ctx context.Context, tenant int32, prefix string, filter *audit.Filter) error {
	if !keyPrefixForm.MatchString(prefix) {
		return problem.Invalid(problem.At("query.key",
			"must be the prefix of a key, such as punctual_5f0e8b110c6d9a44, without the secret that follows it"))
	}
	owner, id, err := s.Store.Tenants.FindKey(ctx, prefix)
	if err == nil && owner != tenant && !auth.CallerOf(ctx).Role.Includes(auth.RoleOperator) {
		err = store.ErrNotFound
	}
	var key tenants.Key
	if err == nil {
		key, err = s.Store.Tenants.GetKey(ctx, owner, id)
	}
	if errors.Is(err, store.ErrNotFound) {
		return problem.New(problem.CodeNotFound, "There is no API key with that prefix.")
	}
	if filter.Key = &id; filter.From.Before(key.CreatedAt) {
		filter.From = key.CreatedAt // before that it has changed nothing
	}
	return err
}
