package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// hammer sends requests from 32 clients and reports how many are answered per second.
func hammer(b *testing.B, request func(i int64) *http.Request, status int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	var n atomic.Int64
	b.SetParallelism(16) // times GOMAXPROCS, which was 2 for the published figures
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			response, err := client.Do(request(n.Add(1)))
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
	_, err := s.store.Pool().Exec(b.Context(), `SELECT punctual.create_partitions(current_date - 31, current_date + 7)`)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkCreateJob(b *testing.B) {
	s := aged(b)
	hammer(b, func(i int64) *http.Request {
		r, _ := http.NewRequestWithContext(b.Context(), "POST", s.url+"/v1/jobs",
			strings.NewReader(minimal(fmt.Sprint("job-", i))))
		r.Header.Set("Content-Type", "application/json")
		return r
	}, http.StatusCreated)
}

func BenchmarkGetJob(b *testing.B) {
	s := aged(b)
	s.create(minimal("n"))
	hammer(b, func(int64) *http.Request {
		r, _ := http.NewRequestWithContext(b.Context(), "GET", s.url+"/v1/jobs/n", nil)
		return r
	}, http.StatusOK)
}

// BenchmarkPreview measures a request that makes no query.
func BenchmarkPreview(b *testing.B) {
	s := serve(b)
	hammer(b, func(int64) *http.Request {
		r, _ := http.NewRequestWithContext(b.Context(), "POST", s.url+"/v1/schedules/preview",
			strings.NewReader(`{"schedule":{"cron":"0 3 * * *"},"from":"2026-01-01T00:00:00Z","n":1}`))
		r.Header.Set("Content-Type", "application/json")
		return r
	}, http.StatusOK)
}
