package command

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"punctual/internal/process"
)

// patient starts a replica with a grace and a drain timeout of an hour.
func patient(t *testing.T) *process.Replica {
	t.Helper()
	return serve(t, dsnFor(t), "--shutdown-grace=1h", "--drain-timeout=1h")
}

func kill(t *testing.T, p *process.Process, s syscall.Signal) {
	t.Helper()
	must(t, p.Signal(s))
}

// A second SIGTERM or Ctrl-C ends grace and drain at once.
//
//prove:replicas
func TestASecondSignalStopsAReplicaAtOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(first.String(), func(t *testing.T) {
			t.Parallel()
			r := patient(t)
			arrived := make(chan struct{}, 1)
			target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
				arrived <- struct{}{}
				<-request.Context().Done()
			}))
			t.Cleanup(target.Close)
			hang := process.JobSpec{"name": "hang", "target": map[string]any{"url": target.URL}, "timeout": "2h"}
			calls(t, r, "POST", "/v1/jobs", hang, nil)
			calls(t, r, "POST", "/v1/jobs/hang/trigger", nil, nil)
			select {
			case <-arrived:
			case <-bounded(t).Done():
				t.Fatal("nothing is sent")
			}
			kill(t, r.Process, first)
			kill(t, r.Process, syscall.SIGINT) // the same stop: a parent has passed on a terminal's Ctrl-C
			unready := func() bool {
				status, _ := r.API.Do(t.Context(), "GET", "/readyz", nil, nil)
				return status == 503
			}
			await(t, "/readyz to say that it stops", unready)
			asked := time.Now() // at the latest
			await(t, "what counts as the same stop to pass", func() bool {
				return time.Since(asked) > 1500*time.Millisecond
			})
			if !unready() {
				t.Error("the same stop, told twice, has hurried it")
			}
			kill(t, r.Process, syscall.SIGTERM)
			if code, out := wait(t, r.Process); code != 0 || !strings.Contains(out, "scheduler stopped") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

func TestCtrlCDoesNotWaitForLoadBalancers(t *testing.T) {
	t.Parallel()
	r := patient(t)
	kill(t, r.Process, syscall.SIGINT)
	if code, out := wait(t, r.Process); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
