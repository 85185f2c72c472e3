package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/events"
)

func (s *server) eventRoutes() {
	api.RegisterBody[EmitInput](s.api, api.Operation{
		ID: "emit-event", Route: "POST /v1/events/{name}", Role: auth.RoleSubmitter, Tag: tagEvents,
		Summary: "Emit an event", Status: http.StatusAccepted,
		Responses: orDry[events.WouldEmit, events.Emitted](s.api, "The jobs that a dry run found"),
		Asks:      `{"body":{"invoice":17,"country":"DE","paid":true}}`,
		Description: "Each job whose schedule names the event, and whose filter the body matches, runs once. A job without " +
			"a body of its own sends that of the event. A paused job gets a recorded skip. Events have no order. With dry_run, " +
			"the response is 200 with the jobs that would run, and nothing is written.",
	}, api.Optional, s.emitEvent)
	api.Register(s.api, api.Operation{
		ID: "get-event", Route: "GET /v1/events/{name}/{event}", Role: auth.RoleViewer, Tag: tagEvents,
		Summary: "Get an event",
		Answers: []string{`{"body":{"invoice":17,"country":"DE","paid":true},"runs":[{
			"id":"019ada6b-9c80-8b21-8f6e-1d2c3b4a5968","job":"book-payment","status":"succeeded",
			"finished_at":"2026-12-01T11:00:00.311Z"}]}`},
		Description: "With its body, its runs and how they ended, and how far its fan-out is. limit and cursor page the " +
			"runs.",
	}, s.getEvent)
	api.Register(s.api, api.Operation{
		ID: "list-events", Route: "GET /v1/events/{name}", Role: auth.RoleViewer, Tag: tagEvents,
		Summary: "List the events of a name", Description: "Newest first. They are kept as long as runs.",
	}, s.listEvents)
	api.Register(s.api, api.Operation{
		ID: "list-event-names", Route: "GET /v1/events", Role: auth.RoleViewer, Tag: tagEvents,
		Summary:     "List the names of events",
		Description: "Those that jobs have subscribed to, and those of events that are kept, in the order of the names.",
	}, s.listEventNames)
}

// EmitInput is the body that emits an event.
type EmitInput struct {
	Body   json.RawMessage `json:"body,omitempty" doc:"Sent by its runs, unless their jobs have a body of their own. Filters look at it. Any JSON, at most 262144 bytes (256 KiB). Nothing in it is filled in. Absent: the event has no body."`
	DryRun bool            `json:"dry_run,omitempty" doc:"Only say which jobs would run; write nothing." example:"false"`
}

// EventNameRef is the input of operations on events of a name.
type EventNameRef struct {
	Name string `path:"name" doc:"Name of the event." example:"invoice.paid"`
}

// Exists returns ErrNotFound for a malformed name.
func (e EventNameRef) Exists() error { return mayExist(e.Name) }

// NotFound implements api.Named.
func (EventNameRef) NotFound() string { return "There is no event with that name and id." }

type emitInput struct {
	EventNameRef
	Keyed[EmitInput]
	Traced
}

// Exists never refuses: to emit needs no earlier event of the name, and what is wrong with the name is said.
func (emitInput) Exists() error { return nil }

func (s *server) emitEvent(ctx context.Context, tenant int32, in *emitInput) (*answered, error) {
	asked := in.Request.Value
	problems := api.Within("body", jobspec.ValidateEvent(asked.Body))
	if in.EventNameRef.Exists() != nil {
		problems = append(problems, problem.At("path.name", "must be "+jobspec.NameRule))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	if asked.DryRun {
		return counted(s.Store.Events.Try(ctx, tenant, in.Name, asked.Body))
	}
	at := func(e events.Emitted) string { return "/v1/events/" + e.Name + "/" + e.ID.String() }
	return accept(ctx, s, tenant, in.by(), at, func(w store.Writer) (events.Emitted, error) {
		return w.Emit(ctx, in.Name, asked.Body, in.parent())
	})
}

func (s *server) listEventNames(
	ctx context.Context, tenant int32, in *Paging,
) (*answer[List[events.EventName]], error) {
	return pageOf(s.Store.Events.Names(ctx, tenant, in.page()))
}

type listEventsInput struct {
	EventNameRef
	Paging
}

func (s *server) listEvents(
	ctx context.Context, tenant int32, in *listEventsInput,
) (*answer[List[events.Event]], error) {
	return pageOf(s.Store.Events.List(ctx, tenant, in.Name, in.page()))
}

type eventRef struct {
	EventNameRef
	Event pathID `path:"event" doc:"Id of the event." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Paging
}

// Exists returns ErrNotFound for a malformed name or id.
func (e eventRef) Exists() error { return cmp.Or(e.Event.exists(), e.EventNameRef.Exists()) }

func (s *server) getEvent(ctx context.Context, tenant int32, in *eventRef) (*answer[events.EventDetails], error) {
	return show(s.Store.Events.Get(ctx, tenant, in.Name, in.Event.id, in.page()))
}
