//prove:addresses

package prove

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// lastRun triggers a job and returns its run once it is final.
func lastRun(t testing.TB, a *client.Client, job string) runView {
	t.Helper()
	return finalRun(t, a, trigger(t, a, job))
}

func once(name, url string) process.JobSpec {
	return process.JobSpec{"name": name, "target": map[string]any{"url": url}, "retry": map[string]any{"max_attempts": 1}}
}

// refused creates a job that must be refused because of its URL, and returns the reason.
func refused(t testing.TB, a *client.Client, url string) string {
	t.Helper()
	status, err := a.Do(t.Context(), http.MethodPost, "/v1/jobs", once("refused", url), nil)
	if status != http.StatusUnprocessableEntity || !strings.Contains(err.Error(), "body.target.url") {
		t.Errorf("%s: %d %v", url, status, err)
		return ""
	}
	return err.Error()
}

// Permission for a network is given and withdrawn. Both take effect within 2 s, even on open connections.
//
// By default jobs may call only public addresses.
func TestATenantMayCallWhatItIsAllowedAndNoLonger(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(target.Close)
	dsn := pgtest.DSN(t)
	api := serve(t, dsn, "--allow-targets=192.168.7.0/24").API
	conn := connect(t, dsn)
	allow := func(networks string) {
		t.Helper()
		execute(t, conn, `UPDATE punctual.tenants SET allowed_targets = $1::text::cidr[]`, networks)
	}
	for _, url := range []string{
		target.URL, strings.Replace(target.URL, "127.0.0.1", "localhost", 1),
		strings.Replace(target.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1), "http://169.254.169.254/latest/meta-data/",
	} {
		refused(t, api, url)
	}
	allow("{127.0.0.1/32}")
	began := time.Now()
	await(t, "the permission to arrive", func() bool {
		status, _ := api.Do(t.Context(), http.MethodPost, "/v1/jobs", once("allowed", target.URL), nil)
		return status == http.StatusCreated
	})
	t.Logf("the permission arrived after %s", time.Since(began))
	if run := lastRun(t, api, "allowed"); run.Status != "succeeded" || calls.Load() != 1 {
		t.Errorf("%+v, %d calls", run, calls.Load())
	}
	allow("{}")
	began = time.Now()
	var run runView
	await(t, "the permission to be gone", func() bool { run = lastRun(t, api, "allowed"); return run.Status == "dead" })
	t.Logf("the permission was gone after %s", time.Since(began))
	before := calls.Load()
	if len(run.Attempts) == 0 {
		t.Fatalf("%+v", run)
	}
	last := run.Attempts[len(run.Attempts)-1]
	if run.Reason != "blocked_address" || !strings.Contains(last.Error, "127.0.0.1 is a loopback address") {
		t.Errorf("%+v", run)
	}
	if run = lastRun(t, api, "allowed"); run.Reason != "blocked_address" || calls.Load() != before {
		t.Errorf("%+v, %d calls after the permission was gone", run, calls.Load()-before)
	}
	// A job with a forbidden URL can still be changed in other ways.
	do[any](t, api, http.MethodPatch, "/v1/jobs/allowed", map[string]any{"description": "moved"})
}

// Runs aim at Punctual's APIs and database, with every network allowed. They are refused.
//
// The API and the database of their own replica, and the API of another.
func TestNoRunReachesPunctualItself(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	for name, dsn := range map[string]string{
		"over a socket": pgtest.DSN(t),
		"over TCP":      pgtest.TCP(t, server, pgtest.DSN(t)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, other := serve(t, dsn, "--allow-targets=0.0.0.0/0,::/0").API,
				serve(t, dsn, "--allow-targets=0.0.0.0/0,::/0").API
			database, err := pgx.ParseConfig(server.TCP("postgres"))
			must(t, err)
			_, apiPort, _ := net.SplitHostPort(strings.TrimPrefix(own.URL, "http://"))
			for _, host := range []string{
				"127.0.0.1", "127.1.2.3", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "[::]",
			} {
				if why := refused(t, own,
					fmt.Sprintf("http://%s:%s/v1/jobs", host, apiPort)); !strings.Contains(why, "the API of this replica") {
					t.Errorf("%s: %s", host, why)
				}
				if why := refused(t, own,
					fmt.Sprintf("http://%s:%d/", host, database.Port)); !strings.Contains(why, "the database of this replica") {
					t.Errorf("%s: %s", host, why)
				}
			}
			// Neither replica knows at which address the other listens, but each recognises a request of a run.
			create(t, own, once("to-own", other.URL+"/v1/jobs"))
			create(t, other, once("to-other", own.URL+"/v1/jobs"))
			for _, job := range []string{"to-own", "to-other"} {
				// Either replica may send the run. It may not connect to itself, and the other replica refuses the request.
				if run := lastRun(t, own, job); run.Status != "dead" ||
					run.Reason != "blocked_address" && run.Reason != "http_4xx" {
					t.Errorf("%s: %+v", job, run)
				}
			}
			if jobs := do[struct{ Data []any }](t, own, http.MethodGet, "/v1/jobs", nil); len(jobs.Data) != 2 {
				t.Errorf("%d jobs", len(jobs.Data))
			}
		})
	}
}

// A replica ignores the environment's proxy, and logs no password of the flag's.
func TestOnlyTheProxyOfTheFlagIsUsed(t *testing.T) {
	t.Parallel()
	var proxied, direct atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		if r.Method != http.MethodConnect || r.Header.Get("Proxy-Authorization") == "" {
			t.Errorf("the proxy was asked %s %s %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { direct.Add(1) }))
	t.Cleanup(target.Close)
	start := func(flags ...string) *process.Replica {
		t.Helper()
		var env []string
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
			env = append(env, name+"="+proxy.URL)
		}
		return serveBinary(t, binary(t), pgtest.DSN(t), env, append(flags, "--log-level=debug")...)
	}
	plain := start()
	create(t, plain.API, once("j", target.URL))
	if run := lastRun(t, plain.API, "j"); run.Status != "succeeded" || direct.Load() != 1 || proxied.Load() != 0 {
		t.Errorf("%+v: %d requests came, %d to the environment's proxy", run, direct.Load(), proxied.Load())
	}
	through := start("--egress-proxy=" + strings.Replace(proxy.URL, "http://", "http://punctual:hunter2@", 1))
	create(t, through.API, once("j", target.URL))
	if run := lastRun(t, through.API, "j"); run.Reason != "blocked_address" || direct.Load() != 1 || proxied.Load() != 1 {
		t.Errorf("%+v: %d requests came, %d to the proxy", run, direct.Load(), proxied.Load())
	}
	stop(t, through)
	if strings.Contains(through.Output(), "hunter2") {
		t.Error("the proxy's password is in the log")
	}
}
