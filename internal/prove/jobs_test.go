package prove

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/process"
	"punctual/scheduler/domain"
)

// job returns a definition with a name, a target URL and further fields.
func job(name, url string, more process.JobSpec) process.JobSpec {
	j := process.JobSpec{"name": name, "target": map[string]any{"url": url}}
	maps.Copy(j, more)
	return j
}

// many returns n definitions that differ in their names alone: name-0, name-1, and so on.
func many(n int, name, url string, more process.JobSpec) (jobs []process.JobSpec) {
	for i := range n {
		jobs = append(jobs, job(fmt.Sprint(name, "-", i), url, more))
	}
	return jobs
}

// inTurn gives the jobs overlap policies in turn.
func inTurn(jobs []process.JobSpec, policies ...string) []process.JobSpec {
	for i, j := range jobs {
		j["concurrency_policy"] = policies[i%len(policies)]
	}
	return jobs
}

// These return schedules.
func oneShot(due time.Time) map[string]any { return map[string]any{"at": client.Instant(due)} }
func delayed(delay string) map[string]any  { return map[string]any{"delay": delay} }
func every(period string) map[string]any   { return map[string]any{"every": period} }

// everyUntil fires at the first instant, then after every period, and at the last instant for the last time.
func everyUntil(period string, first, last time.Time) map[string]any {
	return map[string]any{"every": period, "starts_at": client.Instant(first), "ends_at": client.Instant(last)}
}

// create creates jobs in batches small enough that even a slow machine finishes each before the API gives up on its
// database.
func create(t testing.TB, a *client.Client, jobs ...process.JobSpec) {
	t.Helper()
	for some := range slices.Chunk(jobs, 250) {
		must(t, process.Create(t.Context(), a, some))
	}
}

// trigger triggers a job and returns the id of the run.
func trigger(t testing.TB, a *client.Client, job string) (run string) {
	t.Helper()
	return do[struct{ ID string }](t, a, "POST", "/v1/jobs/"+job+"/trigger", nil).ID
}

// runView is a run as the API shows it.
type runView struct {
	ID, Status, Reason string
	RerunOf            string `json:"rerun_of"`
	Result             json.RawMessage
	ResultNote         string `json:"result_note"`
	TraceID            string `json:"trace_id"`
	Request            *struct {
		Method, URL string
		Headers     map[string]string
		Body        json.RawMessage
	}
	Attempts []struct {
		Number     int
		Outcome    string
		Replica    string
		StartedAt  string `json:"started_at"`
		FinishedAt string `json:"finished_at"`
		HTTPStatus int    `json:"http_status"`
		Error      string
		Headers    map[string]string
		Response   string
		Truncated  bool
	}
}

func readRun(t testing.TB, a *client.Client, id string) runView {
	t.Helper()
	return do[runView](t, a, "GET", "/v1/runs/"+id, nil)
}

// finalRun waits for the end of a run, and returns it.
func finalRun(t testing.TB, a *client.Client, id string) (run runView) {
	t.Helper()
	await(t, "the end of run "+id, func() bool {
		run = readRun(t, a, id)
		return domain.Status(run.Status).Final()
	})
	return run
}

// triggerTo triggers a job and waits for the end of the run, which must be the given one.
func triggerTo(t testing.TB, a *client.Client, status, job string) {
	t.Helper()
	if run := finalRun(t, a, trigger(t, a, job)); run.Status != status {
		t.Errorf("the run of %s is %s (%s), want %s", job, run.Status, run.Reason, status)
	}
}

// operation is an operation on many runs or jobs as the API shows it.
type operation struct {
	ID, State             string
	Matched, Done, Failed int
}

// finished waits for the end of an operation, and returns it.
func finished(t testing.TB, a *client.Client, id string) (o operation) {
	t.Helper()
	await(t, "the end of operation "+id, func() bool {
		o = do[operation](t, a, "GET", "/v1/operations/"+id, nil)
		return o.State != "running"
	})
	return o
}
