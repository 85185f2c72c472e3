package store_test

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
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/days"
	"punctual/store/jobs"
)

// measured returns a collector for the jobs of team billing.
func measured(c Fixture, most int, more ...map[string]string) *store.JobMetrics {
	return store.NewJobMetrics(c.Store,
		store.JobMetricsConfig{Selectors: append(more, map[string]string{"team": "billing"}), Max: most})
}

// shows returns the series of a collector, read afresh from the database.
func shows(c Fixture, m *store.JobMetrics) []string {
	c.T.Helper()
	m.Age()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	Must(c.T, err)
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

func wantSeries(c Fixture, m *store.JobMetrics, want ...string) {
	c.T.Helper()
	got := shows(c, m)
	for _, w := range want {
		if without, absent := strings.CutPrefix(w, "no "); absent == slices.ContainsFunc(got, func(s string) bool {
			return s == w || absent && strings.HasPrefix(s, without)
		}) {
			c.T.Errorf("want %q in %q", w, got)
		}
	}
}

func successAt(at time.Time, job string) string {
	return fmt.Sprintf("last_success_timestamp_seconds %v default %s", float64(at.UnixMicro())/1e6, job)
}

func TestTheMetricsOfAJobAreThoseOfAllReplicas(t *testing.T) {
	c := NewReplica(t)
	m := measured(c.Fixture, 10)
	c.Create("j", Never, Labelled("team", "billing"))
	c.Create("other", Never, Labelled("team", "sales"))
	c.Create("once", Delay(time.Hour), Labelled("team", "billing"))
	wantSeries(c.Fixture, m, "consecutive_failures 0 default j", "metrics_left_out 0", "no last_success", "no last_duration",
		"no consecutive_failures 0 default o")

	run := func(end Ending) uuid.UUID { // as another replica would do it
		a := c.Begun("j")
		c.Finish(end(a))
		return a.RunID
	}
	ended := func(id uuid.UUID) time.Time {
		return Value[time.Time](c.Fixture, `SELECT finished_at FROM punctual.runs WHERE id = $1`, id)
	}
	well := run(Succeeded)
	wantSeries(c.Fixture, m, "consecutive_failures 0 default j", successAt(ended(well), "j"))
	run(Failed)
	wantSeries(c.Fixture, m, "consecutive_failures 1 default j", successAt(ended(well), "j"))
	run(Buried)
	wantSeries(c.Fixture, m, "consecutive_failures 2 default j")
	c.Trigger("j") // a run in flight is neither a failure nor a success
	a := c.One(c.ClaimReady(10))
	wantSeries(c.Fixture, m, "consecutive_failures 2 default j")
	// The collector of another replica, which has seen none of these runs, shows the same.
	wantSeries(c.Fixture, measured(c.Fixture, 10), shows(c.Fixture, m)...)
	c.Finish(Succeeded(a))
	wantSeries(c.Fixture, m, "consecutive_failures 0 default j", successAt(ended(a.RunID), "j"))
}

func TestTheLastSuccessIsFoundBehindAnyNumberOfFailures(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := NewReplica(t)
	job := c.Create("j", Never, Labelled("team", "billing"))
	c.Create("well", Never, Labelled("team", "billing"))
	const failures = 3*store.FurtherRuns + store.NewestRuns + 7
	c.RunsOf(job.ID, 1, 0, `'succeeded'`)
	c.RunsOf(job.ID, failures, time.Second, `'dead'`)
	success := successAt(c.Midnight().Add(2*time.Second+time.Millisecond), "j")
	m := measured(c.Fixture, 10)
	looks := 0
	for ; !slices.Contains(shows(c.Fixture, m), success); looks++ {
		if looks == 10 {
			t.Fatalf("not found: %q", shows(c.Fixture, m))
		}
	}
	if looks < 2 {
		t.Errorf("found in %d looks: each is to read a part only", looks)
	}
	wantSeries(c.Fixture, m, success, "consecutive_failures 100 default j", "last_duration_seconds 2 default j",
		"consecutive_failures 0 default well")

	// The collector does not look again for a success that it knows, and further failures do not make it forget the
	// success.
	c.RunsOf(job.ID, 3*store.NewestRuns, time.Hour, `'dead'`)
	wantSeries(c.Fixture, m, success, success, "consecutive_failures 100 default j")

	// A success happens between two looks, followed by more failures than one look reads.
	c.RunsOf(job.ID, 1, 2*time.Hour, `'succeeded'`)
	c.RunsOf(job.ID, 3*store.NewestRuns, 3*time.Hour, `'dead'`)
	success = successAt(c.Midnight().Add(2*time.Hour+2*time.Second+time.Millisecond), "j")
	wantSeries(c.Fixture, m, success, "consecutive_failures 100 default j")
	c.RunsOf(job.ID, 5, 4*time.Hour, `CASE WHEN i = 3 THEN 'succeeded' ELSE 'dead' END`)
	wantSeries(c.Fixture, m, successAt(c.Midnight().Add(4*time.Hour+2*time.Second+3*time.Millisecond), "j"),
		"consecutive_failures 2 default j")
}

func TestJobMetricsAreBoundedInNumberAndSaySo(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := OpenFixture(t, store.Options{
		DatabaseURL: pgtest.DSN(t), MaxConns: 2, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for i := range 5 {
		c.Create(fmt.Sprint("j", i), Never, func(d *jobspec.Definition) {
			d.Labels = map[string]string{"team": "billing", "tier": "gold"} // matches both selectors
		})
	}
	m := measured(c, 3, map[string]string{"tier": "gold"})
	for range 2 {
		wantSeries(c, m, "metrics_left_out 2", "consecutive_failures 0 default j0", "consecutive_failures 0 default j2",
			"no consecutive_failures 0 default j3")
	}
	if n := strings.Count(log.String(), "left_out=2"); n != 1 {
		t.Errorf("the log says so %d times: %s", n, &log)
	}
	c.DeleteJob("j0")
	wantSeries(c, m, "metrics_left_out 1", "no consecutive_failures 0 default j0", "consecutive_failures 0 default j3")
	wantSeries(c, measured(c, 10), "metrics_left_out 0")
}

// Several scrapers cost as much as one. While the database is away, the collector shows no series rather than old ones.
func TestScrapesShareALookAndNeverTellWhatIsOld(t *testing.T) {
	c := NewReplica(t)
	c.Create("j", Never, Labelled("team", "billing"))
	m := measured(c.Fixture, 10)
	shows(c.Fixture, m)
	before := c.DB.Callers.Stat().AcquireCount()
	began := time.Now()
	for range 20 {
		ch := make(chan prometheus.Metric, 10)
		m.Collect(ch)
		if len(ch) != 2 {
			t.Fatalf("%d series", len(ch))
		}
	}
	if n := c.DB.Callers.Stat().AcquireCount() - before; n > 0 && time.Since(began) < store.JobMetricsAge {
		t.Errorf("%d looks", n)
	}
	c.Close()
	if got := shows(c.Fixture, m); got != nil {
		t.Errorf("without a database: %q", got)
	}
}

func TestJobMetricsAreReadByIndex(t *testing.T) {
	t.Parallel()
	pgtest.Exhaustive(t, "its tables are large")
	for name, first := range map[string]string{"analysed or not": `SELECT`, "analysed when empty": `ANALYZE`} {
		t.Run(name, func(t *testing.T) {
			var job jobs.Record
			AnalysedOrNot(t, func(c Replica) {
				job = c.Create("j", Never, Labelled("team", "billing"))
				c.RunsOf(job.ID, 20_000, 0, `'dead'`)
				c.RunsOf(job.ID, 1, time.Minute, `'succeeded'`)
				c.RunsOf(job.ID, 1000, 2*time.Minute, `'dead'`)
				c.Exec(first)
				c.Many(24_000, "other", -time.Hour)
				c.Exec(`SELECT gin_clean_pending_list('punctual.jobs_by_label')`) // as a vacuum does; the list holds at most 4 MB
			}, func(t *testing.T, watch Replica) {
				for _, plans := range PlanModes {
					watch.WantNoScans("&plan_cache_mode="+plans, func(worker Replica) {
						m := measured(worker.Fixture, 1000)
						for range 2 {
							wantSeries(worker.Fixture, m, "consecutive_failures 100 default j", "last_duration_seconds 2 default j")
						}
					})
				}
				// Once the last success is known, the pages that a look reads are in proportion to the runs that it reads.
				for sql, most := range map[string]int{
					store.SelectNewest(days.Recent()): 4 * store.NewestRuns, store.SelectMeasured: 200,
				} {
					known := domain.FirstRunID(watch.Midnight().Add(time.Minute))
					args := []any{[]uuid.UUID{job.ID}, []uuid.UUID{known}, store.NewestRuns}
					if sql == store.SelectMeasured {
						args = []any{[]string{`{"team":"billing"}`}, 2000}
					}
					p := watch.Explain(sql, args...)
					if scans := append(p.Scans("jobs"), p.Scans("runs")...); p.Hit+p.Read > most || slices.Contains(scans, "Seq Scan") {
						t.Errorf("%d pages, read by %v, for %s", p.Hit+p.Read, scans, sql)
					}
				}
			})
		})
	}
}
