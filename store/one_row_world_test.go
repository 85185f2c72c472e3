package store_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
)

// listener is what all targets and recipients of notices of a world are.
type listener struct {
	*httptest.Server
	mu    sync.Mutex
	heard []string // the paths of requests
}

func listen(t *testing.T) *listener {
	l := &listener{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		l.mu.Lock()
		again := slices.Contains(l.heard, r.URL.Path)
		l.heard = append(l.heard, r.URL.Path)
		l.mu.Unlock()
		switch {
		case strings.HasSuffix(r.URL.Path, "/broken"), strings.HasSuffix(r.URL.Path, "/flaky") && !again:
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/accepts"):
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *listener) has(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.heard, path)
}

// tenantWorld is a tenant with every kind of work that a replica does, and all of it due.
type tenantWorld struct {
	Replica
	name string
	at   *listener
	old  time.Time // a day past its retention
	eye  *pgx.Conn // reads also what fails
	jobs map[string]uuid.UUID
}

// populate gives tenants every kind of work. Nothing of it is done before a replica starts.
func populate(c Replica, eye *pgx.Conn, at *listener, names ...string) (all []*tenantWorld) {
	c.T.Helper()
	for _, name := range names {
		w := &tenantWorld{Replica: c, name: name, at: at, eye: eye, jobs: map[string]uuid.UUID{}}
		w.Tenant = c.NewTenant(name).ID
		w.KeepChanges(24 * time.Hour)
		w.Limit("max_concurrent_runs", 20)
		_, _, err := c.Limits.Put(c.T.Context(), w.Tenant, "warehouse", limits.Settings{MaxRunning: new(1)})
		c.Must(err)
		all = append(all, w)
	}
	for _, some := range []func(*tenantWorld){
		(*tenantWorld).past, (*tenantWorld).held, (*tenantWorld).ended, (*tenantWorld).waiting, (*tenantWorld).due,
	} {
		for _, w := range all {
			some(w)
		}
	}
	c.Lose(c.ReplicaID)
	for _, w := range all {
		for _, job := range Column[string](w.Fixture, `SELECT name || ' ' || id FROM punctual.jobs WHERE tenant = $1`, w.Tenant) {
			name, id, _ := strings.Cut(job, " ")
			w.jobs[name] = uuid.MustParse(id)
		}
	}
	return all
}

// to sends a job's requests to a path of the listener, and has it try once.
func (w *tenantWorld) to(path string) Option {
	return func(d *jobspec.Definition) {
		url := w.at.URL + "/" + w.name + path
		d.Retry.MaxAttempts = 1
		if len(d.Steps) == 0 {
			d.Target.URL = url
		}
		for i := range d.Steps {
			if d.Steps[i].Approval == nil {
				d.Steps[i].Target.URL = url
			}
		}
	}
}

func (w *tenantWorld) manual(name string, options ...Option) jobs.Record {
	return w.Create(name, append([]Option{Never, w.to("/well")}, options...)...)
}

// due are slots that are due, and what is about to be.
func (w *tenantWorld) due() {
	w.Create("slots", Every(time.Second), w.to("/well"))
	w.Create("once", Delay(time.Second), w.to("/well"))
	w.Create("paused", Every(time.Second), w.to("/well"))
	w.PauseWith("paused", "", new(w.Clock().Add(time.Second)))
	w.Create("queued", Every(time.Second), Overlapping(jobspec.PolicyQueue), w.to("/well"))
	w.Create("replacing", Every(time.Second), Replacing, w.to("/well"))
	w.Create("heard", Every(time.Second), w.to("/well"), Notify(w.at.URL+"/"+w.name+"/lifecycle", jobspec.Lifecycle...))
}

// waiting are runs that wait.
func (w *tenantWorld) waiting() {
	w.manual("waits")
	w.Trigger("waits")
	w.manual("dated")
	w.Date("dated", jobs.DateRequest{Delay: time.Second})
	w.Date("dated", jobs.DateRequest{Delay: time.Hour})
	w.Edit("dated", Described("changed, so that its dated runs are to be fitted"))
	w.manual("subscriber", On("arrived", ""))
	w.Emit("arrived", `{"order": 1}`)
	w.manual("chained")
	w.manual("chain", Then("chained"))
	w.Trigger("chain")
	w.manual("flow", Steps("a", "b<a"), w.to("/well"))
	w.Trigger("flow")
	w.manual("asks", func(d *jobspec.Definition) {
		d.Target = jobspec.Target{}
		ask := &jobspec.Approval{
			ExpiresAfter: jobspec.DurationOf(time.Second),
			Notify:       []jobspec.ApprovalNotify{{URL: w.at.URL + "/" + w.name + "/approve"}},
		}
		d.Steps = []jobspec.Step{{Name: "ask", Approval: ask}}
	})
	w.Trigger("asks")
	w.manual("silent", ByCallback, w.to("/accepts"), func(d *jobspec.Definition) {
		d.HeartbeatTimeout = jobspec.DurationOf(time.Second)
	})
	w.Trigger("silent")
	w.manual("dies", w.to("/broken"), Notify(w.at.URL+"/"+w.name+"/dead", jobspec.EventDead))
	w.Trigger("dies")
	w.manual("retries", w.to("/flaky"), func(d *jobspec.Definition) {
		d.Retry = jobspec.Retry{MaxAttempts: 3, InitialBackoff: jobspec.DurationOf(100 * time.Millisecond)}
	})
	w.Trigger("retries")
	w.manual("limited", func(d *jobspec.Definition) { d.Limits = []string{"warehouse"} })
	w.Trigger("limited")
	w.Trigger("limited")
}

// held are runs that have begun, on a replica that is lost.
func (w *tenantWorld) held() {
	w.Manual("lost", w.to("/well"), func(d *jobspec.Definition) {
		d.Retry = jobspec.Retry{MaxAttempts: 3, InitialBackoff: jobspec.DurationOf(100 * time.Millisecond)}
	})
	a := w.Accepted("reports", w.to("/accepts"))
	w.Exec(`UPDATE punctual.tenants SET reports_since = now() WHERE id = $1`, w.Tenant)
	w.Exec(`INSERT INTO punctual.reports (run_id, tenant, fence, outcome) VALUES ($1, $2, $3, 'succeeded')`,
		a.RunID, w.Tenant, a.Fence)
	w.Cancel(w.Manual("cancelled", w.to("/well")).RunID)
}

// ended are runs that have ended, and what is to be done about them.
func (w *tenantWorld) ended() {
	w.manual("replayed")
	w.Die("replayed", 2)
	w.Start(letters.BulkRequest{Kind: letters.OperationReplay})
	w.Create("changed", Labelled("team", "ours"))
	w.StartJobs(letters.JobsRequest{Change: jobs.Change{Action: jobs.PauseMany, Filter: OfTeam}})
	w.Create("backfilled", HalfPast, w.to("/well"))
	w.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 day' WHERE job_id = $1`,
		w.Get("backfilled").ID)
	now := w.Clock()
	w.Backfill(letters.BackfillRequest{Job: "backfilled", From: now.Add(-3 * time.Hour), To: now})
}

// past is what is past its retention, and hours that were not counted.
func (w *tenantWorld) past() {
	job := w.Create("past", Never)
	w.RanTwice(job.ID, w.Ago(31))
	w.RanTwice(job.ID, w.Ago(93))
	w.old = w.Ago(100)
	w.Ran(job.ID, w.Clock().Add(-2*time.Hour), domain.StatusSucceeded)
	w.Exec(`INSERT INTO punctual.idempotency_keys (tenant, key, created_at, request_hash, status, response)
		VALUES ($1, 'old', now() - interval '2 days', '', 200, '{}')`, w.Tenant)
	w.Exec(`INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger,
			attempts, died_at, resolved_at)
		VALUES ($1, $2, $3, 'past', 1, $4, 'manual', 1, $4, $4)`, uuid.New(), job.ID, w.Tenant, w.old)
	w.Exec(`INSERT INTO punctual.events (id, tenant, name, body, emitted_at, emitted_by, subscribed, ended_at)
		VALUES ($1, $2, 'old', '{}', $3, 'test', 0, $3)`, domain.NewRunID(w.old), w.Tenant, w.old)
}

// undone lists what is still to be done of the tenant's work.
func (w *tenantWorld) undone() (undone []string) {
	w.T.Helper()
	want := func(is bool, what string, args ...any) {
		if !is {
			undone = append(undone, fmt.Sprintf(what, args...))
		}
	}
	for _, job := range []string{
		"slots", "once", "paused", "queued", "replacing", "heard", "waits", "dated", "subscriber", "chain", "chained",
		"flow", "asks", "silent", "dies", "retries", "limited", "lost", "reports", "cancelled", "replayed", "backfilled",
	} {
		ended := Ask[int](w.T, w.eye, `SELECT count(*) FROM punctual.runs WHERE job_id = $1 AND finished_at > $2`, w.jobs[job], Began)
		want(ended >= map[string]int{"limited": 2, "replayed": 2, "backfilled": 3, "flow": 3, "asks": 2}[job] &&
			ended > 0, "%s: %d runs have ended", job, ended)
	}
	for _, path := range []string{"lifecycle", "dead"} {
		want(w.at.has("/"+w.name+"/"+path), "no notice of %s was sent", path)
	}
	for _, n := range []struct{ what, sql string }{
		{"operations", `SELECT count(*) FROM punctual.operations WHERE tenant = $1 AND state = 'running'`},
		{"work on dated runs", `SELECT count(*) FROM punctual.dated_work WHERE tenant = $1`},
		{"workflows", `SELECT count(*) FROM punctual.workflows WHERE tenant = $1`},
		{"old keys", `SELECT count(*) FROM punctual.idempotency_keys WHERE tenant = $1 AND key = 'old'`},
		{"old dead letters", `SELECT count(*) FROM punctual.dead_letters WHERE tenant = $1 AND job_name = 'past'`},
		{"old events", `SELECT count(*) FROM punctual.events WHERE tenant = $1 AND name = 'old'`},
		{"old runs", `SELECT count(*) FROM punctual.runs WHERE tenant = $1 AND scheduled_for < now() - interval '50 days'`},
		{"uncounted", `SELECT (count(*) = 0)::int FROM punctual.hourly_runs WHERE tenant = $1`},
		{"not in the feed", `SELECT (count(*) = 0)::int FROM punctual.changes WHERE tenant = $1`},
	} {
		count := Ask[int](w.T, w.eye, n.sql, w.Tenant)
		want(count == 0, "%s: %d", n.what, count)
	}
	return undone
}
