package store

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/jobs"
)

// measured returns a collector for the jobs of team billing.
func (c crud) measured(most int, more ...map[string]string) *JobMetrics {
	return NewJobMetrics(c.Store,
		JobMetricsConfig{Selectors: append(more, map[string]string{"team": "billing"}), Max: most})
}

// shows returns the series of a collector, read afresh from the database.
func (c crud) shows(m *JobMetrics) []string {
	c.t.Helper()
	m.mu.Lock()
	m.read = time.Time{} // as if the last answer were too old
	m.mu.Unlock()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	must(c.t, err)
	var series []string
	for _, family := range families {
		for _, metric := range family.Metric {
			var labels []string
			for _, l := range slices.Backward(metric.Label) { // labels are sorted by name, so job comes before tenant
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "punctual_job_")
			series = append(series,
				strings.TrimSpace(fmt.Sprintf("%s %v %s", name, metric.Gauge.GetValue(), strings.Join(labels, " "))))
		}
	}
	return series
}

func (c crud) wantSeries(m *JobMetrics, want ...string) {
	c.t.Helper()
	got := c.shows(m)
	for _, w := range want {
		if without, absent := strings.CutPrefix(w, "no "); absent == slices.ContainsFunc(got, func(s string) bool {
			return s == w || absent && strings.HasPrefix(s, without)
		}) {
			c.t.Errorf("want %q in %q", w, got)
		}
	}
}

// runsOf writes n runs of a job, a millisecond apart, from the given time after midnight on. The status is an SQL
// expression that may refer to i, the number of the run.
func (c crud) runsOf(job uuid.UUID, n int, after time.Duration, status string) {
	c.t.Helper()
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, started_at, finished_at, tenant,
			job_version, lane, status, trigger, attempt)
		SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 19))::uuid,
			$1, at, at, at, at + interval '2 seconds', $2, 1, 5, `+status+`, 'schedule', 1
		FROM (SELECT i, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + $4::interval
				+ i * interval '1 ms' AS at
			FROM generate_series(1, $3::int) i) s`, job, c.tenant, n, after)
}

func (c crud) midnight() time.Time {
	c.t.Helper()
	return value[time.Time](c, `SELECT date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'`)
}

func successAt(at time.Time, job string) string {
	return fmt.Sprintf("last_success_timestamp_seconds %v default %s", float64(at.UnixMicro())/1e6, job)
}

func TestTheMetricsOfAJobAreThoseOfAllReplicas(t *testing.T) {
	c := newClaimer(t)
	m := c.measured(10)
	c.create("j", never, labelled("team", "billing"))
	c.create("other", never, labelled("team", "sales"))
	c.create("once", delay(time.Hour), labelled("team", "billing"))
	c.wantSeries(m, "consecutive_failures 0 default j", "metrics_left_out 0", "no last_success", "no last_duration",
		"no consecutive_failures 0 default o")

	run := func(end ending) uuid.UUID { // as another replica would do it
		a := c.begun("j")
		c.finish(end(a))
		return a.RunID
	}
	ended := func(id uuid.UUID) time.Time {
		return value[time.Time](c.crud, `SELECT finished_at FROM punctual.runs WHERE id = $1`, id)
	}
	well := run(succeeded)
	c.wantSeries(m, "consecutive_failures 0 default j", successAt(ended(well), "j"))
	run(failed)
	c.wantSeries(m, "consecutive_failures 1 default j", successAt(ended(well), "j"))
	run(buried)
	c.wantSeries(m, "consecutive_failures 2 default j")
	c.trigger("j") // a run in flight is neither a failure nor a success
	a := c.one(c.claimReady(10))
	c.wantSeries(m, "consecutive_failures 2 default j")
	// The collector of another replica, which has seen none of these runs, shows the same.
	c.wantSeries(c.measured(10), c.shows(m)...)
	c.finish(succeeded(a))
	c.wantSeries(m, "consecutive_failures 0 default j", successAt(ended(a.RunID), "j"))
}

func TestTheLastSuccessIsFoundBehindAnyNumberOfFailures(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := newClaimer(t)
	job := c.create("j", never, labelled("team", "billing"))
	c.create("well", never, labelled("team", "billing"))
	const failures = 3*furtherRuns + newestRuns + 7
	c.runsOf(job.ID, 1, 0, `'succeeded'`)
	c.runsOf(job.ID, failures, time.Second, `'dead'`)
	success := successAt(c.midnight().Add(2*time.Second+time.Millisecond), "j")
	m := c.measured(10)
	looks := 0
	for ; !slices.Contains(c.shows(m), success); looks++ {
		if looks == 10 {
			t.Fatalf("not found: %q", c.shows(m))
		}
	}
	if looks < 2 {
		t.Errorf("found in %d looks: each is to read a part only", looks)
	}
	c.wantSeries(m, success, "consecutive_failures 100 default j", "last_duration_seconds 2 default j",
		"consecutive_failures 0 default well")

	// The collector does not look again for a success that it knows, and further failures do not make it forget the
	// success.
	c.runsOf(job.ID, 3*newestRuns, time.Hour, `'dead'`)
	c.wantSeries(m, success, success, "consecutive_failures 100 default j")

	// A success happens between two looks, followed by more failures than one look reads.
	c.runsOf(job.ID, 1, 2*time.Hour, `'succeeded'`)
	c.runsOf(job.ID, 3*newestRuns, 3*time.Hour, `'dead'`)
	success = successAt(c.midnight().Add(2*time.Hour+2*time.Second+time.Millisecond), "j")
	c.wantSeries(m, success, "consecutive_failures 100 default j")
	c.runsOf(job.ID, 5, 4*time.Hour, `CASE WHEN i = 3 THEN 'succeeded' ELSE 'dead' END`)
	c.wantSeries(m, successAt(c.midnight().Add(4*time.Hour+2*time.Second+3*time.Millisecond), "j"),
		"consecutive_failures 2 default j")
}

func TestJobMetricsAreBoundedInNumberAndSaySo(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := openCRUD(t, Options{DatabaseURL: pgtest.DSN(t), MaxConns: 2, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 5 {
		c.create(fmt.Sprint("j", i), never, func(d *domain.Definition) {
			d.Labels = map[string]string{"team": "billing", "tier": "gold"} // matches both selectors
		})
	}
	m := c.measured(3, map[string]string{"tier": "gold"})
	for range 2 {
		c.wantSeries(m, "metrics_left_out 2", "consecutive_failures 0 default j0", "consecutive_failures 0 default j2",
			"no consecutive_failures 0 default j3")
	}
	if n := strings.Count(log.String(), "left_out=2"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, &log)
	}
	c.deleteJob("j0")
	c.wantSeries(m, "metrics_left_out 1", "no consecutive_failures 0 default j0", "consecutive_failures 0 default j3")
	c.wantSeries(c.measured(10), "metrics_left_out 0")
}

// Several scrapers cost as much as one. While the database is away, the collector shows no series rather than old ones.
func TestScrapesShareALookAndNeverTellWhatIsOld(t *testing.T) {
	c := newClaimer(t)
	c.create("j", never, labelled("team", "billing"))
	m := c.measured(10)
	c.shows(m)
	before := c.DB.Callers.Stat().AcquireCount()
	began := time.Now()
	for range 20 {
		ch := make(chan prometheus.Metric, 10)
		m.Collect(ch)
		if len(ch) != 2 {
			t.Fatalf("%d series", len(ch))
		}
	}
	if n := c.DB.Callers.Stat().AcquireCount() - before; n > 0 && time.Since(began) < jobMetricsAge {
		t.Errorf("%d looks", n)
	}
	c.Close()
	if got := c.shows(m); got != nil {
		t.Errorf("without a database: %q", got)
	}
}

func TestJobMetricsAreReadByIndex(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	for name, first := range map[string]string{"analysed or not": `SELECT`, "analysed when empty": `ANALYZE`} {
		t.Run(name, func(t *testing.T) {
			var job jobs.Record
			analysedOrNot(t, func(c claimer) {
				job = c.create("j", never, labelled("team", "billing"))
				c.runsOf(job.ID, 20_000, 0, `'dead'`)
				c.runsOf(job.ID, 1, time.Minute, `'succeeded'`)
				c.runsOf(job.ID, 1000, 2*time.Minute, `'dead'`)
				c.exec(first)
				c.many(24_000, "other", -time.Hour)
				c.exec(`SELECT gin_clean_pending_list('punctual.jobs_by_label')`) // as a vacuum does; the list holds at most 4 MB
			}, func(t *testing.T, watch claimer) {
				for _, plans := range planModes {
					watch.wantNoScans("&plan_cache_mode="+plans, func(worker claimer) {
						m := worker.measured(1000)
						for range 2 {
							worker.wantSeries(m, "consecutive_failures 100 default j", "last_duration_seconds 2 default j")
						}
					})
				}
				// Once the last success is known, the pages that a look reads are in proportion to the runs that it reads.
				for sql, most := range map[string]int{selectNewest(days.Recent()): 4 * newestRuns, selectMeasured: 200} {
					args := []any{[]uuid.UUID{job.ID}, []uuid.UUID{domain.FirstRunID(watch.midnight().Add(time.Minute))}, newestRuns}
					if sql == selectMeasured {
						args = []any{[]string{`{"team":"billing"}`}, 2000}
					}
					p := watch.explain(sql, args...)
					if scans := append(p.scans("jobs"), p.scans("runs")...); p.Hit+p.Read > most || slices.Contains(scans, "Seq Scan") {
						t.Errorf("%d pages, read by %v, for %s", p.Hit+p.Read, scans, sql)
					}
				}
			})
		})
	}
}
