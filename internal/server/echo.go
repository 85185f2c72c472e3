package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// echoLimit is how much of a request the echo target reads.
const echoLimit = 64 << 10

// echoPatience is how long the echo target waits at most, which is less than its server waits to write an answer.
const echoPatience = 50 * time.Second

// withEcho adds the target of the sample jobs. /echo answers every request with a copy of the request, with the status
// in ?status= and after the time in ?after=, such as 20s.
func withEcho(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.Handle("/", api)
	return mux
}

// RunEcho serves the echo target alone, at every path, until ctx ends. It does not log health probes.
func RunEcho(ctx context.Context, address string, log *slog.Logger) error {
	listener, err := listen("--listen", address)
	if err != nil {
		return err
	}
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			about := []any{"method", r.Method, "path", r.URL.EscapedPath(), "run", r.Header.Get("Webhook-Id")}
			if step := r.Header.Get("Punctual-Step"); step != "" {
				about = append(about, "step", step)
			}
			log.Info("request", append(about, "attempt", r.Header.Get("Punctual-Attempt"))...)
		}
		echo(w, r)
	}), log)
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		shutDown(context.WithoutCancel(ctx), server, apiShutdown)
	})()
	log.Info("echo ready", "url", "http://"+listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return nil
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, echoLimit))
	if err != nil {
		http.Error(w, "the body is larger than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	status, err := strconv.Atoi(r.URL.Query().Get("status"))
	if err != nil || status < 200 || status > 599 {
		status = http.StatusOK
	}
	if after, err := time.ParseDuration(r.URL.Query().Get("after")); err == nil {
		select {
		case <-time.After(min(after, echoPatience)):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "headers": r.Header, "body": string(body)})
}
