package httpapi

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"punctual/httpapi/auth"
	"punctual/internal/oidctest"
	"punctual/store/tenants"
)

// hammer sends requests from 32 clients and reports how many are answered per second. body returns the body of the ith.
func hammer(b *testing.B, s *service, method, path string, body func(i int64) string, status int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	var n atomic.Int64
	b.SetParallelism(16) // times GOMAXPROCS, which was 2 for the published figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequestWithContext(b.Context(), method, s.url+path, strings.NewReader(body(n.Add(1))))
			r.Header.Set("Content-Type", "application/json")
			response, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode != status {
				b.Errorf("status %d", response.StatusCode)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// aged returns a service whose database has worked for a month. Runs are partitioned by day, and every partition adds
// to the cost of planning and searching.
func aged(b *testing.B) *service {
	s := serve(b)
	s.exec(`SELECT punctual.create_partitions(current_date - 31, current_date + 7)`)
	return s
}

func BenchmarkCreateJob(b *testing.B) {
	s := aged(b)
	hammer(b, s, "POST", "/v1/jobs", func(i int64) string { return minimal(fmt.Sprint("job-", i)) }, http.StatusCreated)
}

func BenchmarkGetJob(b *testing.B) {
	s := aged(b)
	s.create(minimal("n"))
	hammer(b, s, "GET", "/v1/jobs/n", func(int64) string { return "" }, http.StatusOK)
}

// BenchmarkPreview measures a request that makes no query.
func BenchmarkPreview(b *testing.B) {
	s := serve(b)
	hammer(b, s, "POST", "/v1/schedules/preview", func(int64) string {
		return `{"schedule":{"cron":"0 3 * * *"},"from":"2026-01-01T00:00:00Z","n":1}`
	}, http.StatusOK)
}

// BenchmarkCreateJobs writes batches of the largest size, from as many clients as BenchmarkCreateJob.
func BenchmarkCreateJobs(b *testing.B) {
	const size = 1000
	s := aged(b)
	hammer(b, s, "POST", "/v1/jobs/batch", func(i int64) string {
		jobs := make([]string, size)
		for n := range jobs {
			jobs[n] = minimal(fmt.Sprintf("job-%d-%d", i, n))
		}
		return batch("error", jobs...)
	}, http.StatusCreated)
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkAdmit measures authentication of a known caller, to compare with the hundreds of microseconds that a
// request takes.
func BenchmarkAdmit(b *testing.B) {
	i := oidctest.New(b)
	limit := 1_000_000
	s := guarded(b)
	s.tenant("alpha")
	s.tenant("limited", tenants.Tenant{Weight: 1, MaxRequestsPerSecond: &limit})
	for _, c := range []struct {
		name, token string
		noAuth      bool
	}{
		{"none", "", true},
		{"key", s.key("alpha", auth.RoleEditor), false},
		{"key of a limited tenant", s.key("limited", auth.RoleEditor), false},
		{"token", i.Token(nil), false},
	} {
		b.Run(c.name, func(b *testing.B) {
			server := &server{freezes: &freezeBook{store: s.store}, callers: auth.New(auth.Config{
				Store: s.store, NoAuth: c.noAuth, Tenant: tenants.DefaultTenant, OIDC: configOf(i),
				Log: slog.New(slog.DiscardHandler),
			})}
			r := httptest.NewRequest(http.MethodGet, "/v1/jobs", nil)
			r.Header.Set("Authorization", "Bearer "+c.token)
			w := httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.admit(b.Context(), w, r, auth.RoleViewer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
