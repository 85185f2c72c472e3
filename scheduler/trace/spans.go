package trace

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
)

// maker makes spans with the SDK, whose ids it gives, and collects them. Not safe for concurrent use.
type maker struct {
	origin domain.Origin
	tracer otel.Tracer
	made   []sdk.ReadOnlySpan
}

func newMaker(c Config) *maker {
	m := &maker{origin: c.Origin}
	about, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "punctual"), attribute.String("service.version", c.Version),
		attribute.String("host.name", c.Host)), resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil {
		c.Log.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read", "error", err)
	}
	m.tracer = sdk.NewTracerProvider(sdk.WithResource(about), sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithIDGenerator(given{}), sdk.WithSpanProcessor(m)).Tracer("punctual", otel.WithInstrumentationVersion(c.Version))
	return m
}

// OnStart, OnEnd, Shutdown and ForceFlush implement sdk.SpanProcessor.
func (m *maker) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (m *maker) OnEnd(s sdk.ReadOnlySpan)                   { m.made = append(m.made, s) }
func (m *maker) Shutdown(context.Context) error             { return nil }
func (m *maker) ForceFlush(context.Context) error           { return nil }

// given is an sdk.IDGenerator that takes the ids from the context.
type given struct{}

type givenIDs struct{}

func (given) NewIDs(ctx context.Context) (otel.TraceID, otel.SpanID) {
	id, _ := ctx.Value(givenIDs{}).(otel.SpanContext)
	return id.TraceID(), id.SpanID()
}

func (given) NewSpanID(ctx context.Context, _ otel.TraceID) otel.SpanID {
	id, _ := ctx.Value(givenIDs{}).(otel.SpanContext)
	return id.SpanID()
}

// span is a span to be made.
type span struct {
	name       string
	id, parent [8]byte // parent zero: none
	from, till time.Time
	with       []otel.SpanStartOption
	events     []event
	fault      string // what kind of failure it was; empty: none
	error      string // in words
}

type event struct {
	name string
	at   time.Time
}

func (m *maker) add(t domain.Trace, s span) {
	ctx := context.WithValue(context.Background(), givenIDs{},
		otel.NewSpanContext(otel.SpanContextConfig{TraceID: t.ID, SpanID: s.id}))
	if s.parent != ([8]byte{}) {
		ctx = otel.ContextWithRemoteSpanContext(ctx, contextOf(t.ID, s.parent, true))
	}
	if s.till.Before(s.from) { // the database's clock was set back
		s.till = s.from
	}
	_, made := m.tracer.Start(ctx, s.name, append(s.with, otel.WithTimestamp(s.from))...)
	for _, e := range s.events {
		made.AddEvent(e.name, otel.WithTimestamp(e.at))
	}
	if s.fault != "" {
		made.SetStatus(codes.Error, cmp.Or(s.error, s.fault))
		made.SetAttributes(attribute.String("error.type", s.fault))
	}
	made.End(otel.WithTimestamp(s.till))
}

func contextOf(trace [16]byte, id [8]byte, sampled bool) otel.SpanContext {
	return otel.NewSpanContext(otel.SpanContextConfig{
		TraceID: trace, SpanID: id, TraceFlags: otel.TraceFlags(0).WithSampled(sampled), Remote: true,
	})
}

// spans makes the spans of attempts and runs that have ended.
func (m *maker) spans(ends []end, ended []Run) []sdk.ReadOnlySpan {
	m.made = nil
	runs := make(map[uuid.UUID]*Run, len(ended))
	for i := range ended {
		runs[ended[i].ID] = &ended[i]
	}
	for _, e := range ends {
		r := runs[e.run]
		if e.outcome != nil {
			if r != nil && r.Fence != e.outcome.Fence { // a later attempt has ended the run
				r = nil
			}
			m.attempt(e.outcome)
		}
		if r != nil {
			m.run(r)
			delete(runs, e.run)
		}
	}
	return m.made
}

// attempt makes the spans of an attempt that was sent.
func (m *maker) attempt(o *domain.Outcome) {
	if o.StartedAt.IsZero() || o.Job.SendsNothing() {
		return
	}
	trace, ids := m.origin.Trace(o.RunID, o.TraceParent), domain.SpansOf(o.RunID, o.Fence)
	s := span{from: o.StartedAt, till: o.FinishedAt, parent: trace.Root}
	if o.Verdict != domain.Succeed && o.Verdict != domain.Await {
		s.fault, s.error = string(cmp.Or(o.Reason, domain.Reason(o.End().Attempt))), o.Error
	}
	if !o.AcceptedAt.IsZero() { // its request was over then, and has its span
		s.name, s.id, s.parent, s.from = "work", ids.Work, ids.Attempt, o.AcceptedAt
		m.add(trace, s)
		return
	}
	if o.Attempt == 1 && !o.Trigger.Ordered() {
		m.add(trace, span{name: "wait", id: ids.Wait, parent: trace.Root, from: o.DueAt, till: o.StartedAt})
	}
	to := o.Job.URL()
	about := []attribute.KeyValue{
		attribute.Int("punctual.attempt", o.Attempt), attribute.Int64("punctual.fencing_token", o.Fence),
		attribute.String("http.request.method", cmp.Or(o.Job.Target.Method, http.MethodPost)),
		attribute.String("server.address", to.Hostname()),
	}
	if port, err := strconv.Atoi(wire.PortOf(to)); err == nil {
		about = append(about, attribute.Int("server.port", port))
	}
	if o.HTTPStatus != 0 {
		about = append(about, attribute.Int("http.response.status_code", o.HTTPStatus))
	}
	if p := o.Phases; p != nil {
		for _, e := range []event{{"connected", p.Connected}, {"tls", p.Secured}, {"first byte", p.Answered}} {
			if !e.at.IsZero() {
				s.events = append(s.events, event{e.name, o.StartedAt.Add(e.at.Sub(p.Begun))})
			}
		}
	}
	s.name, s.id = "attempt", ids.Attempt
	s.with = []otel.SpanStartOption{otel.WithSpanKind(otel.SpanKindClient), otel.WithAttributes(about...)}
	m.add(trace, s)
}

// run makes the span of a run that has ended.
func (m *maker) run(r *Run) {
	trace := m.origin.Trace(r.ID, r.TraceParent)
	if !trace.Sampled {
		return
	}
	about := []attribute.KeyValue{
		attribute.String("punctual.job", r.Job), attribute.String("punctual.tenant", r.Tenant),
		attribute.String("punctual.run", r.ID.String()), attribute.String("punctual.trigger", string(r.Trigger)),
		attribute.String("punctual.status", string(r.Status)), attribute.Int("punctual.attempts", r.Attempts),
	}
	if r.Reason != "" {
		about = append(about, attribute.String("punctual.reason", string(r.Reason)))
	}
	if r.Step != "" {
		about = append(about, attribute.String("punctual.step", r.Step))
	}
	var links []otel.Link
	for _, l := range r.Links {
		to := domain.ReadTraceParent(l.TraceParent)
		if l.Run != uuid.Nil {
			to = m.origin.Trace(l.Run, l.TraceParent)
		}
		links = append(links, otel.Link{SpanContext: contextOf(to.ID, to.Root, to.Sampled)})
	}
	s := span{
		name: "run", id: trace.Root, parent: trace.Parent, from: r.DueAt, till: r.FinishedAt,
		with: []otel.SpanStartOption{otel.WithAttributes(about...), otel.WithLinks(links...)},
	}
	if r.Trigger.Ordered() { // its slot was due long before it was asked for
		s.from = r.CreatedAt
	}
	if r.Status == domain.StatusDead {
		s.fault, s.error = string(r.Reason), r.Error
	}
	m.add(trace, s)
}
