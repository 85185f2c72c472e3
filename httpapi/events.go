package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/events"
	"punctual/store/pg"
)

// Emitted is the answer to an event that was emitted.
type Emitted struct {
	ID         uuid.UUID `json:"id" format:"uuid" doc:"Id of the event: caused_by of its runs." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Name       string    `json:"name" doc:"Its name." example:"invoice.paid"`
	Subscribed int       `json:"subscribed" doc:"How many jobs had subscribed, whatever their filters. Their runs follow at once." example:"3"`
}

// WouldEmit is the answer to a dry run of an event.
type WouldEmit struct {
	Runs      []string `json:"runs" doc:"Names of the jobs that would run, up to 1,000." example:"[\"book-payment\"]"`
	Paused    []string `json:"paused" doc:"Names of the jobs that would get a skip, because they are paused, up to 1,000."`
	Made      int      `json:"made" doc:"How many jobs would run." example:"1"`
	Skipped   int      `json:"skipped" doc:"How many jobs are paused." example:"0"`
	Unmatched int      `json:"unmatched" doc:"How many jobs have a filter that the body does not match." example:"2"`
}

// Event is an event that was emitted.
type Event struct {
	ID         uuid.UUID `json:"id" format:"uuid" doc:"caused_by of its runs." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Name       string    `json:"name" doc:"Its name." example:"invoice.paid"`
	EmittedAt  time.Time `json:"emitted_at" doc:"When it was emitted. Its subscribers are the jobs whose version was valid then."`
	EmittedBy  string    `json:"emitted_by" doc:"Who emitted it." example:"submitter key shop (punctual_3fPq)"`
	BodyBytes  *int      `json:"body_bytes" doc:"Length of its body. Null: it has none." example:"31"`
	Subscribed int       `json:"subscribed" doc:"How many jobs had subscribed, whatever their filters." example:"3"`
	FanOut     FanOut    `json:"fan_out" doc:"How many of them have their run."`
}

// FanOut is how far an event has come to its subscribers.
type FanOut struct {
	Pending   bool       `json:"pending" doc:"Whether subscribers are left." example:"false"`
	Made      int        `json:"made" doc:"How many runs it has made so far." example:"1"`
	Skipped   int        `json:"skipped" doc:"How many subscribers got a skip so far: paused, or deleted since." example:"0"`
	Unmatched int        `json:"unmatched" doc:"How many have a filter that the body does not match, so far." example:"2"`
	EndedAt   *time.Time `json:"ended_at" doc:"When it had come to all of them. Null: it has not."`
}

// EventDetails are an event and its runs.
type EventDetails struct {
	Event
	Body       json.RawMessage       `json:"body,omitempty" doc:"Its body. Absent: it has none."`
	Statuses   map[domain.Status]int `json:"statuses" doc:"How many of its runs and skips have each status." example:"{\"succeeded\":1}"`
	Runs       []events.EventRun     `json:"runs" doc:"A page of its runs and skips, in the order of their ids."`
	NextCursor *string               `json:"next_cursor" doc:"The cursor of the next page of runs; null on the last one."`
}

// EventName is the name of events, with its subscribers.
type EventName struct {
	Name        string     `json:"name" doc:"The name that jobs have in schedule.event." example:"invoice.paid"`
	Subscribers int        `json:"subscribers" doc:"How many jobs run at it now." example:"3"`
	LastID      *uuid.UUID `json:"last_id" format:"uuid" nullable:"true" doc:"The newest event. Null: none is kept."`
	LastAt      *time.Time `json:"last_at" doc:"When that was emitted."`
	Events      int        `json:"events_24h" doc:"How many were emitted in the last 24 hours." example:"120"`
	Runs        int        `json:"runs_24h" doc:"How many runs these have made." example:"240"`
	Pending     int        `json:"pending" doc:"How many have not come to all their subscribers." example:"0"`
}

func showEvent(e events.Event) Event {
	return Event{
		ID: e.ID, Name: e.Name, EmittedAt: e.EmittedAt.UTC(), EmittedBy: e.EmittedBy, BodyBytes: e.BodyBytes,
		Subscribed: e.Subscribed,
		FanOut: FanOut{
			Pending: e.EndedAt == nil, Made: e.Made, Skipped: e.Skipped, Unmatched: e.Unmatched, EndedAt: utc(e.EndedAt),
		},
	}
}

func showEventName(n events.Name) EventName {
	return EventName{
		Name: n.Name, Subscribers: n.Subscribers, LastID: n.Last, LastAt: utc(n.LastAt), Events: n.DayEvents,
		Runs: n.DayRuns, Pending: n.Pending,
	}
}

func eventPath(name string, id uuid.UUID) string { return "/v1/events/" + name + "/" + id.String() }

func (s *server) eventRoutes() {
	api.RegisterBody[EmitInput](s.api, api.Operation{
		ID: "emit-event", Route: "POST /v1/events/{name}", Role: auth.RoleSubmitter, Tag: tagEvents,
		Summary: "Emit an event", Status: http.StatusAccepted,
		Responses: orDry[WouldEmit, Emitted](s.api, "The jobs that a dry run found"),
		Description: "Each job whose schedule names the event, and whose filter the body matches, runs once. A job without " +
			"a body of its own sends that of the event. A paused job gets a recorded skip. Events have no order. With dry_run, " +
			"the response is 200 with the jobs that would run, and nothing is written.",
	}, api.Optional, s.emitEvent)
	api.Register(s.api, api.Operation{
		ID: "get-event", Route: "GET /v1/events/{name}/{event}", Role: auth.RoleViewer, Tag: tagEvents,
		Summary: "Get an event",
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

type emitInput struct {
	EventNameRef
	Idempotent
	Traced
	Request body.Body[EmitInput]
}

// Exists never refuses: to emit needs no earlier event of the name, and what is wrong with the name is said.
func (emitInput) Exists() error { return nil }

func (s *server) emitEvent(ctx context.Context, tenant int32, in *emitInput) (*answered, error) {
	asked := in.Request.Value
	problems := api.Within("body", domain.ValidateEvent(asked.Body))
	if in.EventNameRef.Exists() != nil {
		problems = append(problems, problem.At("path.name", "must be "+domain.NameRule))
	}
	if err := in.Request.Check(problems...); err != nil {
		return nil, err
	}
	if asked.DryRun {
		t, err := s.Store.Events.Try(ctx, tenant, in.Name, asked.Body)
		return counted(WouldEmit{t.Runs, t.Skips, t.Made, t.Skipped, t.Unmatched}, err)
	}
	at := func(e Emitted) string { return eventPath(e.Name, e.ID) }
	return accept(ctx, s, tenant, under(in.Key, &in.Request), at, func(w store.Writer) (Emitted, error) {
		e, err := w.Emit(ctx, in.Name, asked.Body, in.parent())
		return Emitted{e.ID, in.Name, e.Subscribed}, err
	})
}

func (s *server) listEventNames(ctx context.Context, tenant int32, in *Paging) (*answer[List[EventName]], error) {
	found, next, err := s.Store.Events.Names(ctx, tenant, in.page())
	return listOf(found, next, err, showEventName)
}

type listEventsInput struct {
	EventNameRef
	Paging
}

func (s *server) listEvents(ctx context.Context, tenant int32, in *listEventsInput) (*answer[List[Event]], error) {
	found, next, err := s.Store.Events.List(ctx, tenant, in.Name, in.page())
	return listOf(found, next, err, showEvent)
}

type eventRef struct {
	EventNameRef
	Event pathID `path:"event" doc:"Id of the event." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	Paging
}

// Exists returns ErrNotFound for a malformed name or id.
func (e eventRef) Exists() error { return cmp.Or(e.Event.exists(), e.EventNameRef.Exists()) }

func (s *server) getEvent(ctx context.Context, tenant int32, in *eventRef) (*answer[EventDetails], error) {
	d, next, err := s.Store.Events.Get(ctx, tenant, in.Name, in.Event.id, in.page())
	return show(EventDetails{showEvent(d.Event), d.Body, d.Ends, d.Runs, pg.OrNull(next)}, err)
}
