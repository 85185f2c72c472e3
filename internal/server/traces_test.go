package server

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/internal/otlptest"
	"punctual/internal/pgtest"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/pg"
)

func TestTheVariablesOfOpenTelemetryDecide(t *testing.T) {
	const to = "http://127.0.0.1:1"
	for name, c := range map[string]struct {
		env  string
		want string // none, some, or a part of the error
	}{
		"nothing":           {"", "none"},
		"an endpoint":       {"EXPORTER_OTLP_ENDPOINT=" + to, "some"},
		"one for traces":    {"EXPORTER_OTLP_TRACES_ENDPOINT=" + to + "/v1/traces", "some"},
		"disabled":          {"EXPORTER_OTLP_ENDPOINT=" + to + " SDK_DISABLED=true", "none"},
		"no exporter":       {"EXPORTER_OTLP_ENDPOINT=" + to + " TRACES_EXPORTER=none", "none"},
		"the protocol":      {"EXPORTER_OTLP_ENDPOINT=" + to + " EXPORTER_OTLP_PROTOCOL=http/protobuf", "some"},
		"another protocol":  {"EXPORTER_OTLP_ENDPOINT=" + to + " EXPORTER_OTLP_PROTOCOL=grpc", `_OTLP_PROTOCOL: "grpc"`},
		"not a URL":         {"EXPORTER_OTLP_ENDPOINT=collector:4318", "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL"},
		"not a URL, traces": {"EXPORTER_OTLP_TRACES_ENDPOINT=collector", "OTLP_TRACES_ENDPOINT must be a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable := range strings.FieldsSeq(c.env) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv("OTEL_"+name, value)
			}
			tracer, err := newTracer(t.Context(), Config{Log: slog.New(slog.DiscardHandler)}, domain.Origin{},
				prometheus.NewRegistry())
			got := "none"
			if tracer != nil {
				got = "some"
			}
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s; want %s", got, c.want)
			}
		})
	}
}

// A replica exports a run that continues its caller's trace, and what it sends belongs to that trace.
func TestAReplicaExportsItsRuns(t *testing.T) {
	collector := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "jobs-of-billing")
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	sent := make(chan string, 1)
	target := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("Traceparent")
	}))
	defer target.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended, url := make(chan error, 1), make(chan string, 1)
	finished := make(chan domain.Outcome, 1)
	dsn, ca := pgtest.DSN(t), caFile(t, target)
	go func() {
		ended <- Run(ctx, Config{
			Store:  store.Options{DatabaseURL: dsn, MaxConns: pg.LeastConns, Master: pgtest.Master(t)},
			Listen: "127.0.0.1:0", Queues: map[string]int{"default": 5}, Version: "test",
			Log: slog.New(slog.DiscardHandler), NoAuth: true, AllowTargets: guard.Loopback, TargetCAFile: ca,
			Ready: func(at string) { url <- at },
			Finished: func(outcomes []domain.Outcome) {
				for _, o := range outcomes {
					finished <- o
				}
			},
		})
	}()
	at := <-url
	post(t, at+"/v1/jobs", fmt.Sprintf(`{"name": "a", "target": {"url": %q}}`, target.URL), "")
	post(t, at+"/v1/jobs/a/trigger", "", "00-"+trace+"-"+caller+"-01")
	if o := <-finished; o.Verdict != domain.Succeed {
		t.Errorf("the run: %s", o.Error)
	}
	collector.Await(t) // a stop leaves the export little time
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if header := <-sent; header[3:35] != trace {
		t.Errorf("the target got %s", header)
	}
	var got []string
	for _, s := range collector.Spans() {
		line := s.Name
		for _, e := range s.Events {
			if line += " " + e.Name; e.TimeUnixNano < s.StartTimeUnixNano || e.TimeUnixNano > s.EndTimeUnixNano {
				t.Errorf("%s of %s at %d is outside of it", e.Name, s.Name, e.TimeUnixNano)
			}
		}
		got = append(got, line)
		if s.Trace != trace || (s.Parent == caller) != (s.Name == "run") {
			t.Errorf("%s: trace %s, parent %s", s.Name, s.Trace, s.Parent)
		}
	}
	slices.Sort(got)
	if want := "attempt connected tls first byte, run, wait"; strings.Join(got, ", ") != want {
		t.Errorf("spans %q, want %s", got, want)
	}
	if collector.Service() != "jobs-of-billing" {
		t.Errorf("the spans are of %s", collector.Service())
	}
}

// caFile writes the certificate of a server.
func caFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func post(t *testing.T, url, body, traceparent string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s: %s", url, response.Status)
	}
}
