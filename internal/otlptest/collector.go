// Package otlptest is a collector of spans for tests: it receives OTLP over HTTP.
package otlptest

import (
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps the spans that it receives.
type Collector struct {
	URL     string      // of the collector, without the path
	Refuses atomic.Bool // it answers 400

	mu      sync.Mutex
	spans   []Span
	service string
	asked   chan struct{} // has a value for each request that no test has awaited
}

// Span is a span, with its ids in hex and its attributes as texts.
type Span struct {
	*otlp.Span
	Trace, ID, Parent string
	With              map[string]string
	Links             []string // as trace-span
}

// New starts a collector.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{asked: make(chan struct{}, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { c.asked <- struct{}{} }()
		if c.Refuses.Load() {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if err := c.receive(r); err != nil {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) receive(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			return err
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				c.service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, shown(s))
			}
		}
	}
	return nil
}

func shown(s *otlp.Span) Span {
	span := Span{
		Span: s, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId), With: map[string]string{},
	}
	for _, a := range s.Attributes {
		text := a.Value.String()
		if _, value, is := strings.Cut(text, ":"); is {
			text = strings.Trim(value, `"`)
		}
		span.With[a.Key] = text
	}
	for _, l := range s.Links {
		span.Links = append(span.Links, hex.EncodeToString(l.TraceId)+"-"+hex.EncodeToString(l.SpanId))
	}
	return span
}

// Await waits for the next request.
func (c *Collector) Await(t testing.TB) {
	t.Helper()
	select {
	case <-c.asked:
	case <-time.After(time.Minute):
		t.Fatal("the collector has got nothing for a minute")
	}
}

// Spans returns the spans so far, by the start of each.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := slices.Clone(c.spans)
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	return spans
}

// Service returns the name of the service that sent the last spans.
func (c *Collector) Service() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service
}
