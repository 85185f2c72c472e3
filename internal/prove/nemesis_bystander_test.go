package prove

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/process"
)

// A bystander is a tenant that does nothing wrong, beside the tenants that the nemesis attacks.
const bystander = "bystander"

const (
	bystanderPath = "/bystander"
	bystanderJobs = 10
	bystanderLate = 250 * time.Millisecond // the target for its p99
	hangingPath   = "/hanging"
	hangingJobs   = 3
)

// stand lets the bystander's jobs fire every second of a mix.
func (b *besieged) stand(m mix) {
	b.t.Helper()
	must(b.t, b.execute(`INSERT INTO punctual.tenants (name) VALUES ($1)`, bystander))
	api := b.members[0].replica.API.WithHeader("Punctual-Tenant", bystander)
	for i := range bystanderJobs {
		do[any](b.t, api, "POST", "/v1/jobs", job(fmt.Sprint("stands-", i), b.witness.URL+bystanderPath, m.everySecond()))
	}
}

// hanging returns jobs for one path of a host. Their requests hang now and then until they time out.
func (b *besieged) hanging(m mix) (jobs []process.JobSpec) {
	b.witness.Cycle(hangingPath, Answer{Hang: true}, Answer{Hang: true}, Answer{})
	for i := range hangingJobs {
		spec := m.everySecond()
		spec["timeout"], spec["retry"] = "2s", map[string]any{"max_attempts": 2, "initial_backoff": "1s"}
		jobs = append(jobs, job(fmt.Sprint("hanging-", i), b.witness.URL+hangingPath, spec))
	}
	return jobs
}

// away records a time without a replica or without a database, and a while after it.
func (b *besieged) away(since time.Time) {
	const recovery = 2 * time.Second // a replica reconnects within this time
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nobody = append(b.nobody, Span{since, time.Now().Add(recovery)})
}

// fault counts a fault that begins now, and returns what records its end.
func (b *besieged) fault(what string) (over func()) {
	b.note(what)
	since := time.Now()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults[what] = append(b.faults[what], Span{since, time.Now()})
	}
}

// logBystander logs the lateness of those runs of the bystander that were due while a replica and the database were up,
// and stayed up for as long as a run may be late.
// It logs all of them, and those that were due during each kind of fault.
func (b *besieged) logBystander(t testing.TB, f Facts) {
	due := map[uuid.UUID]time.Time{}
	for _, r := range f.Runs {
		if r.Trigger == "schedule" && !during(b.nobody, r.DueAt) && !during(b.nobody, r.DueAt.Add(bystanderLate)) {
			due[r.ID] = r.DueAt
		}
	}
	late := map[string][]time.Duration{}
	for _, q := range f.Requests {
		at, ok := due[q.Run]
		if !ok || q.Path != bystanderPath || q.Attempt != 1 {
			continue
		}
		kinds := []string{"at all times"}
		for what, spans := range b.faults {
			if during(spans, at) {
				kinds = append(kinds, "during: "+what)
			}
		}
		if len(kinds) == 1 {
			kinds = append(kinds, "during none of these")
		}
		for _, kind := range kinds {
			late[kind] = append(late[kind], q.At.Sub(at))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(late)) {
		all := late[kind]
		slices.Sort(all)
		t.Logf("a tenant that does nothing wrong, %s: lateness of %d runs: p50 %s, p99 %s, longest %s", kind, len(all),
			quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1))
	}
}
