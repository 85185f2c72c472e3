package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// served starts a replica with a grace and a drain timeout of an hour, and with further flags.
func served(t *testing.T, flags ...string) *process.Replica {
	t.Helper()
	r, err := process.Serve(bounded(t), binary(t), pgtest.DSN(t),
		append([]string{"--shutdown-grace=1h", "--drain-timeout=1h"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

func signal(t *testing.T, r *process.Replica, s syscall.Signal) {
	t.Helper()
	if err := r.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestASecondSignalStopsAReplicaAtOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(first.String(), func(t *testing.T) {
			t.Parallel()
			ctx := bounded(t)
			r := served(t)
			arrived := make(chan struct{}, 1)
			target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				arrived <- struct{}{}
				<-request.Context().Done()
			}))
			t.Cleanup(target.Close)
			hang := process.JobSpec{"name": "hang", "target": map[string]any{"url": target.URL}, "timeout": "2h"}
			if err := process.Create(ctx, r.API, []process.JobSpec{hang}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.API.Do(ctx, "POST", "/v1/jobs/hang/trigger", nil, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case <-arrived:
			case <-ctx.Done():
				t.Fatal("nothing is sent")
			}
			signal(t, r, first)
			signal(t, r, syscall.SIGINT) // the same stop: a parent has passed on a terminal's Ctrl-C
			asked := time.Now()
			unready := func() bool {
				status, _ := r.API.Do(ctx, "GET", "/readyz", nil, nil)
				return status == 503
			}
			await(ctx, t, "/readyz to say that it stops", unready)
			await(ctx, t, "what counts as the same stop to pass", func() bool {
				return time.Since(asked) > 1500*time.Millisecond
			})
			if !unready() {
				t.Error("the same stop, told twice, has hurried it")
			}
			signal(t, r, syscall.SIGTERM)
			if code, out := wait(t, r.Process); code != 0 || !strings.Contains(out, "scheduler stopped") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

func TestCtrlCDoesNotWaitForLoadBalancers(t *testing.T) {
	t.Parallel()
	r := served(t)
	signal(t, r, syscall.SIGINT)
	if code, out := wait(t, r.Process); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
