package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"punctual/store"
)

func (s *server) auditRoutes() {
	register(s, huma.Operation{
		OperationID: "list-audit-log", Method: http.MethodGet, Path: "/v1/audit-log", Tags: []string{tagAudit},
		Summary: "List the audit log", Errors: []int{422},
		Description: "Who changed what and when, and its state before and after. Newest first. All filters must match. " +
			"Each change is written together with its entry or not at all, and entries are never changed. Runs that schedules " +
			"start are not listed here: see the runs. Secrets are shown as ***. A page of large definitions ends before " +
			"`limit`, after 4 MiB.",
	}, s.listAudit)
}

// AuditEntry is one change in the audit log.
type AuditEntry struct {
	ID         uuid.UUID       `json:"id" format:"uuid" doc:"Its id." example:"019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"`
	At         time.Time       `json:"at" doc:"When the change was made."`
	ActorKind  store.ActorKind `json:"actor_kind" enum:"anybody,key,token,command,system" doc:"How the actor authenticated. anybody: authentication is off. system: Punctual itself, for example when a pause ends at its set time." example:"key"`
	Actor      *string         `json:"actor" doc:"Who made the change: the id of a key, the subject of a token, or a login. Null: unknown." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	ActorName  *string         `json:"actor_name" doc:"The name of the key, if the actor is one." example:"deploy"`
	Address    *string         `json:"address" doc:"Where the request came from." example:"203.0.113.7"`
	RequestID  *string         `json:"request_id" doc:"The request's X-Request-Id." example:"7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"`
	Action     store.Action    `json:"action" doc:"What was done: the kind of resource, a dot, a verb." example:"job.pause"`
	Resource   string          `json:"resource" enum:"job,run,dead_letter,operation,api_key,tenant,secret,signing_secret,deployment,breaker" doc:"The kind of resource that was changed." example:"job"`
	ResourceID *uuid.UUID      `json:"resource_id" format:"uuid" nullable:"true" doc:"Id of the resource that was changed."`
	JobID      *uuid.UUID      `json:"job_id" format:"uuid" nullable:"true" doc:"The job that the change is about, also for a change to one of its runs."`
	Name       *string         `json:"name" doc:"The name of the resource at that time; for a run or dead letter, the name of its job." example:"daily-invoice-gen"`
	Before     json.RawMessage `json:"before" doc:"The resource before the change; if it was changed, the part that changed. Null: there was nothing to show."`
	After      json.RawMessage `json:"after" doc:"The resource after the change. Null: there is nothing to show."`
}

func showAudit(r store.AuditRecord) AuditEntry {
	e := AuditEntry{
		ID: r.ID, At: r.At.UTC(), ActorKind: r.ActorKind, Actor: orNull(r.Actor), ActorName: orNull(r.ActorName),
		RequestID: orNull(r.RequestID), Action: r.Action, Resource: r.Action.Resource(), ResourceID: r.ResourceID,
		JobID: r.JobID, Name: orNull(r.Name), Before: r.Before, After: r.After,
	}
	if r.Address != nil {
		e.Address = new(r.Address.String())
	}
	if e.Before == nil {
		e.Before = json.RawMessage("null")
	}
	if e.After == nil {
		e.After = json.RawMessage("null")
	}
	return e
}

type listAuditInput struct {
	Action     string       `query:"action" enum:"job.create,job.update,job.pause,job.resume,job.delete,job.backfill,run.trigger,run.cancel,dead_letter.replay,dead_letter.resolve,operation.create,operation.cancel,api_key.create,api_key.revoke,tenant.create,tenant.update,tenant.delete,secret.put,secret.delete,secret.rotate,signing_secret.create,signing_secret.delete,deployment.freeze,deployment.unfreeze,deployment.adopt,tenant.freeze,tenant.unfreeze,breaker.reset" doc:"Only changes with this action."`
	Actor      string       `query:"actor" maxLength:"256" doc:"Only changes by this actor: the id or name of a key, the subject of a token, or a login."`
	Resource   string       `query:"resource" enum:"job,run,dead_letter,operation,api_key,tenant,secret,signing_secret,deployment,breaker" doc:"Only changes to this kind of resource."`
	ResourceID string       `query:"resource_id" format:"uuid" doc:"Only changes to the resource with this id."`
	Name       string       `query:"name" maxLength:"128" doc:"Only changes to resources that had this name at that time."`
	Job        string       `query:"job" maxLength:"128" doc:"Only changes to this job, its runs and its dead letters: the job's id or name. The job may be deleted."`
	From       instantParam `query:"from" doc:"Only changes at or after this instant." example:"2026-12-01T00:00:00Z"`
	To         instantParam `query:"to" doc:"Only changes before this instant." example:"2026-12-02T00:00:00Z"`
	Paging
}

// AuditList is one page of the audit log.
type AuditList struct {
	Data       []AuditEntry `json:"data" doc:"The changes of this page."`
	NextCursor *string      `json:"next_cursor" doc:"The cursor of the next page; null on the last one."`
}

type auditListAnswer struct{ Body AuditList }

func (s *server) listAudit(ctx context.Context, tenant int32, in *listAuditInput) (*auditListAnswer, error) {
	filter := store.AuditFilter{
		Action: store.Action(in.Action), Actor: in.Actor, Resource: in.Resource, Name: in.Name, Job: in.Job, Page: in.page(),
	}
	if in.From.at != nil {
		filter.From = *in.From.at
	}
	if in.To.at != nil {
		filter.To = *in.To.at
	}
	if in.ResourceID != "" {
		id, err := uuid.Parse(in.ResourceID)
		if err != nil {
			return nil, invalid([]FieldError{{"query.resource_id", "must be an id"}})
		}
		filter.ResourceID = &id
	}
	records, next, err := s.Store.ListAudit(ctx, tenant, filter)
	if err != nil {
		return nil, err
	}
	list := AuditList{Data: make([]AuditEntry, len(records)), NextCursor: orNull(next)}
	for i, r := range records {
		list.Data[i] = showAudit(r)
	}
	return &auditListAnswer{list}, nil
}
