package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkCreateJobs writes batches of the largest size, from as many clients as BenchmarkCreateJob.
func BenchmarkCreateJobs(b *testing.B) {
	const size = 1000
	s := aged(b)
	hammer(b, func(i int64) *http.Request {
		jobs := make([]string, size)
		for n := range jobs {
			jobs[n] = minimal(fmt.Sprintf("job-%d-%d", i, n))
		}
		r, _ := http.NewRequestWithContext(b.Context(), "POST", s.url+"/v1/jobs/batch",
			strings.NewReader(`{"jobs":[`+strings.Join(jobs, ",")+`]}`))
		r.Header.Set("Content-Type", "application/json")
		return r
	}, http.StatusCreated)
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "jobs/s")
}
