package server

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"punctual/scheduler/domain"
	"punctual/scheduler/trace"
)

// newTracer returns what exports spans, by the variables that OpenTelemetry defines; nil if they name no endpoint.
func newTracer(
	ctx context.Context, c Config, origin domain.Origin, registry prometheus.Registerer,
) (*trace.Tracer, error) {
	of := func(name string) (variable, value string) {
		variable = "OTEL_EXPORTER_OTLP_TRACES_" + name
		if value = os.Getenv(variable); value == "" {
			variable = "OTEL_EXPORTER_OTLP_" + name
			value = os.Getenv(variable)
		}
		return variable, value
	}
	variable, endpoint := of("ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s must be a URL, such as http://collector.internal:4318", variable)
	}
	if name, protocol := of("PROTOCOL"); cmp.Or(protocol, "http/protobuf") != "http/protobuf" {
		return nil, fmt.Errorf("%s: %q is not supported; leave it out, or write http/protobuf, to which collectors "+
			"listen at port 4318", name, protocol)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("exporting spans", "error", err) }))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing the export of spans: %w", err)
	}
	host, _ := os.Hostname() // shown to people only
	return trace.New(trace.Config{
		Origin: origin, Version: c.Version, Host: host, Exporter: exporter, Log: c.Log, Registry: registry,
	}), nil
}
