package prove

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/proc"
)

// A bystander is a tenant that does nothing wrong beside those that the nemesis is after.
const bystander = "bystander"

const (
	bystanderPath = "/bystander"
	bystanderJobs = 10
	hangingPath   = "/hanging"
	hangingJobs   = 3
)

// stand has the bystander's jobs fire every second of a mix.
func (b *besieged) stand(m mix) {
	b.t.Helper()
	conn := connect(b.t, b.dsn)
	defer func() { _ = conn.Close(b.t.Context()) }()
	execute(b.t, conn, `INSERT INTO punctual.tenants (name) VALUES ($1)`, bystander)
	api := b.members[0].replica.API.WithHeader("Punctual-Tenant", bystander)
	for i := range bystanderJobs {
		do[any](b.t, api, "POST", "/v1/jobs", job(fmt.Sprint("stands-", i), b.witness.URL+bystanderPath, m.everySecond()))
	}
}

// hanging are jobs on one path of a host, whose requests hang now and then until they time out.
func (b *besieged) hanging(m mix) (jobs []proc.JobSpec) {
	b.witness.Cycle(hangingPath, Answer{Hang: true}, Answer{Hang: true}, Answer{})
	for i := range hangingJobs {
		spec := m.everySecond()
		spec["timeout"], spec["retry"] = "2s", map[string]any{"max_attempts": 2, "initial_backoff": "1s"}
		jobs = append(jobs, job(fmt.Sprint("hanging-", i), b.witness.URL+hangingPath, spec))
	}
	return jobs
}

// away notes a time in which no replica or no database was there, and a while after it.
func (b *besieged) away(since time.Time) {
	const recovery = 2 * time.Second // a replica connects again within that
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nobody = append(b.nobody, Span{since, time.Now().Add(recovery)})
}

// logBystander logs how late the bystander's runs were that were due while a replica and the database were there.
func (b *besieged) logBystander(t testing.TB, f Facts) {
	due := map[uuid.UUID]time.Time{}
	for _, r := range f.Runs {
		out := slices.ContainsFunc(b.nobody, func(s Span) bool { return !r.DueAt.Before(s.From) && r.DueAt.Before(s.To) })
		if r.Trigger == "schedule" && !out {
			due[r.ID] = r.DueAt
		}
	}
	var late []time.Duration
	for _, q := range f.Requests {
		if at, ok := due[q.Run]; ok && q.Path == bystanderPath && q.Attempt == 1 {
			late = append(late, q.At.Sub(at))
		}
	}
	slices.Sort(late)
	t.Logf("a tenant that does nothing wrong: lateness of %d runs: p50 %s, p99 %s, longest %s", len(late), quantile(late, 0.5), quantile(late, 0.99), quantile(late, 1))
}
