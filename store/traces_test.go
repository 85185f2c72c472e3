package store_test

import (
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"punctual/internal/otlptest"
	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/trace"
	"punctual/store"
	"punctual/store/jobs"
)

// tracing is a replica that exports spans.
type tracing struct {
	Replica
	registry *prometheus.Registry
	log      *strings.Builder
	stop     func() // returns when all is exported
}

// newTracing starts a replica on a database that exports to a collector.
func newTracing(t *testing.T, dsn, collector string, ratio float64) tracing {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(collector+"/v1/traces"))
	Must(t, err)
	r := tracing{registry: prometheus.NewRegistry(), log: &strings.Builder{}}
	tracer := trace.New(trace.Config{
		Origin: domain.Origin{TraceRatio: ratio}, Exporter: exporter, Registry: r.registry,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	c := OpenFixture(t, store.Options{DatabaseURL: dsn, MaxConns: 8, Master: pgtest.Master(t), Tracer: tracer})
	r.Replica, r.stop = AsReplica(c), tracer.Start(c.Runs)
	return r
}

// again lets a run that is retried be claimed now.
func (r tracing) again() domain.Assignment {
	r.T.Helper()
	r.Exec(`UPDATE punctual.ready SET due_at = now()`)
	return r.One(r.ClaimReady(10))
}

// namesOf returns the names of spans, in the order of the alphabet.
func namesOf(spans []otlptest.Span) string {
	var all []string
	for _, s := range spans {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func rootOf(run uuid.UUID, traceParent string) string {
	t := domain.Origin{}.Trace(run, traceParent)
	return hex.EncodeToString(t.ID[:]) + "-" + hex.EncodeToString(t.Root[:])
}

func traceparent(a domain.Assignment) string {
	for _, h := range a.Request(domain.Origin{TraceRatio: 1}).Extra {
		if h.Name == "Traceparent" {
			return h.Value
		}
	}
	return ""
}

func TestARunOfTwoReplicasIsOneTrace(t *testing.T) {
	t.Parallel()
	collector, dsn := otlptest.New(t), pgtest.DSN(t)
	one, other := newTracing(t, dsn, collector.URL, 1), newTracing(t, dsn, collector.URL, 1)
	first := one.Manual("a")
	one.FinishAndRelease(Failed(first))
	second := other.again()
	other.FinishAndRelease(Succeeded(second))
	one.stop() // it may find that the run has ended, by the attempt of the other
	other.stop()
	spans := collector.Spans()
	if got := namesOf(spans); got != "attempt attempt run wait" {
		t.Fatalf("spans: %s", got)
	}
	root := rootOf(first.RunID, "")
	for _, s := range spans {
		parent := root[33:]
		if s.Name == "run" {
			parent = ""
			if s.ID != root[33:] || s.With["punctual.job"] != "a" || s.With["punctual.status"] != "succeeded" ||
				s.With["punctual.attempts"] != "2" || s.EndTimeUnixNano <= s.StartTimeUnixNano {
				t.Errorf("the run: %s", s)
			}
		}
		if s.Trace != domain.TraceID(first.RunID, "") || s.Parent != parent {
			t.Errorf("%s: trace %s, parent %q", s.Name, s.Trace, s.Parent)
		}
		if a := map[string]domain.Assignment{"1": first, "2": second}[s.With["punctual.attempt"]]; s.Name == "attempt" &&
			(traceparent(a)[36:52] != s.ID || (s.Status.Message != "") != (a.Attempt == 1)) {
			t.Errorf("attempt %d is sent %s, and exported as %s", a.Attempt, traceparent(a), s)
		}
	}
}

// Whichever replica ends a run, and however, exports its span, once.
func TestRunsThatEndOutsideOfAFinishHaveTheirSpans(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		want string
		run  func(r tracing)
	}{
		"a target calls back": {"attempt run wait work", func(r tracing) {
			a := r.Accepted("a")
			_, err := r.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
			Must(t, err)
		}},
		"a target calls back before its answer is written": {"attempt run wait", func(r tracing) {
			a := r.Manual("a", ByCallback)
			_, err := r.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
			Must(t, err)
			r.Accept(a)
		}},
		"a target is silent": {"attempt run wait work", func(r tracing) {
			r.Overdue(r.Accepted("a", func(d *jobspec.Definition) { d.Retry.MaxAttempts = 1 }).RunID)
		}},
		"a replica is lost, and comes back": {"attempt attempt run wait", func(r tracing) {
			a := r.Manual("a")
			r.Lose(r.ReplicaID)
			r.Recover()
			r.Replica = AsReplica(r.Fixture)
			r.FinishAndRelease(Succeeded(r.again()))
			r.FinishAndRelease(Succeeded(a))
		}},
		"cancelled while it waits": {"run", func(r tracing) {
			r.Create("a", Never)
			r.Cancel(r.Trigger("a").ID)
		}},
		"cancelled while it is sent": {"attempt run wait", func(r tracing) {
			a := r.Manual("a")
			r.Cancel(a.RunID)
			r.FinishAndRelease(Succeeded(a))
		}},
		"its job is deleted": {"run", func(r tracing) {
			r.Create("a", Never)
			r.Trigger("a")
			Must(t, r.Jobs.DeleteJob(t.Context(), r.Tenant, "a", nil, false))
		}},
		"a workflow": {"attempt run run wait", func(r tracing) {
			r.Create("a", Never, Steps("one"))
			r.StartWorkflow("a", "")
			r.FinishAndRelease(Succeeded(r.ClaimSteps()["one"]))
			r.Listen()
		}},
		"skipped": {"", func(r tracing) {
			a := r.Manual("a")
			r.FinishAndRelease(domain.Outcome{
				Assignment: a, Verdict: domain.Expire, Reason: domain.ReasonExpired, FinishedAt: time.Now(),
			})
		}},
		"superseded": {"", func(r tracing) {
			a := r.Manual("a")
			a.Fence--
			r.FinishAndRelease(Succeeded(a))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			collector := otlptest.New(t)
			r := newTracing(t, pgtest.DSN(t), collector.URL, 1)
			r.T = t
			end.run(r)
			r.stop()
			spans := collector.Spans()
			if got := namesOf(spans); got != end.want {
				t.Errorf("spans: %s; want %s", got, end.want)
			}
			ids := map[string]bool{}
			for _, s := range spans {
				if ids[s.ID] {
					t.Errorf("two spans have the id of %s", s.Name)
				}
				ids[s.ID] = true
			}
			for _, s := range spans {
				if s.Name != "run" && !ids[s.Parent] {
					t.Errorf("the parent of %s is no span", s.Name)
				}
				if s.With["punctual.step"] != "" && (len(s.Links) != 1 || !ids[s.Links[0][33:]]) {
					t.Errorf("a step is linked to %s", s.Links)
				}
			}
		})
	}
}

const callers = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"

func TestATriggersTraceIsContinuedAndOthersAreLinked(t *testing.T) {
	t.Parallel()
	collector := otlptest.New(t)
	r := newTracing(t, pgtest.DSN(t), collector.URL, 1)
	r.Create("after", Never)
	r.Create("now", Never, Then("after"))
	r.Create("event", On("paid", ""))
	trigger := func(flag string) uuid.UUID {
		run, err := r.For(r.Tenant).TriggerJob(t.Context(), "now", jobs.TriggerRequest{TraceParent: callers + flag})
		Must(t, err)
		return run.ID
	}
	unsampled, now := trigger("0"), trigger("1")
	at := r.Date("now", jobs.DateRequest{Key: "k", TriggerRequest: jobs.TriggerRequest{TraceParent: callers + "1"}})
	_, err := r.For(r.Tenant).Emit(t.Context(), "paid", nil, callers+"1")
	Must(t, err)
	r.FanOut()
	runs := map[uuid.UUID]domain.Assignment{}
	for _, a := range r.ClaimReady(10).Runs {
		runs[a.RunID] = a
		r.FinishAndRelease(Succeeded(a))
	}
	chained := r.ClaimReady(10).Runs
	for _, a := range chained {
		r.FinishAndRelease(Succeeded(a))
	}
	again, err := r.For(r.Tenant).RerunRun(t.Context(), now, jobs.RerunRequest{})
	Must(t, err)
	r.FinishAndRelease(Succeeded(r.One(r.ClaimReady(10))))
	r.stop()
	if got := traceparent(runs[unsampled]); got[:36] != callers[:36] || got[52:] != "-00" {
		t.Errorf("of a trace that is not sampled it sends %s", got)
	}
	if got := traceparent(runs[now]); got[:36] != callers[:36] || got[52:] != "-01" || got[36:52] == callers[36:52] {
		t.Errorf("it sends %s", got)
	}
	want := map[uuid.UUID]string{now: "", at.Run: callers[3:52], again.ID: rootOf(now, callers+"1")}
	for id, a := range runs {
		if a.Event != "" {
			want[id] = callers[3:52]
		}
	}
	for _, a := range chained {
		of := ""
		if a.CausedBy == now {
			of = callers + "1"
		}
		if a.CausedBy == unsampled {
			of = callers + "0"
		}
		want[a.RunID] = rootOf(a.CausedBy, of)
	}
	if len(want) != 7 {
		t.Fatalf("%d runs", len(want))
	}
	got := map[uuid.UUID]string{}
	for _, s := range collector.Spans() {
		if s.Name != "run" {
			continue
		}
		id := uuid.MustParse(s.With["punctual.run"])
		got[id] = strings.Join(s.Links, " ")
		switch continues := id == now; {
		case continues && (s.Trace != callers[3:35] || s.Parent != callers[36:52]):
			t.Errorf("the run that was triggered: trace %s, parent %s", s.Trace, s.Parent)
		case !continues && (s.Trace != domain.TraceID(id, "") || s.Parent != ""):
			t.Errorf("run %s of job %s: trace %s, parent %q", id, s.With["punctual.job"], s.Trace, s.Parent)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("links:\n%v, want\n%v", got, want)
	}
	if shown := r.Run(now); shown.TraceID != callers[3:35] {
		t.Errorf("the API shows the trace %s", shown.TraceID)
	}
}

func TestACollectorThatIsAwayCostsACounter(t *testing.T) {
	t.Parallel()
	collector := otlptest.New(t)
	collector.Refuses.Store(true)
	r := newTracing(t, pgtest.DSN(t), collector.URL, 1)
	for _, name := range []string{"a", "b"} {
		r.FinishAndRelease(Succeeded(r.Manual(name)))
		collector.Await(t)
	}
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("to stop took %s", took)
	}
	if n := strings.Count(r.log.String(), "spans cannot be exported"); n != 1 {
		t.Errorf("the log says so %d times:\n%s", n, r.log)
	}
	families, err := r.registry.Gather()
	Must(t, err)
	for _, m := range families[0].Metric {
		if result, n := m.Label[0].GetValue(), m.Counter.GetValue(); (n == 6) != (result == "refused") {
			t.Errorf("spans %s: %g", result, n)
		}
	}
}
