package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

// JobMetricsConfig says which jobs get series of their own.
type JobMetricsConfig struct {
	Selectors []map[string]string // a job is selected if it has all labels of one of them
	Max       int                 // at most this many jobs
}

const (
	// jobMetricsAge is how long one read answers scrapes, so that several scrapers cost no more than one.
	jobMetricsAge = 5 * time.Second
	// jobMetricsTimeout bounds one read of the database.
	jobMetricsTimeout = 3 * time.Second
	// newestRuns is how many of a job's runs each look reads at most, newest first.
	newestRuns = 100
	// furtherRuns is how many older runs a look reads at most, over all jobs.
	furtherRuns = 20_000
	// leftOutCounted is how many jobs beyond the bound are counted.
	leftOutCounted = 10_000
)

// JobMetrics exports the last success, the last duration and the consecutive failures of selected jobs. It reads them
// from the database, so every replica reports the same, no matter which replica sent the requests. It implements
// prometheus.Collector.
type JobMetrics struct {
	store     *Store
	selectors []string // JSON objects
	max       int

	mu       sync.Mutex
	read     time.Time // when jobs were read
	jobs     []jobFigures
	leftOut  int
	lookback map[uuid.UUID]*lookback
	told     bool // the log says already that jobs are left out
}

// NewJobMetrics returns the collector of the jobs that c selects.
func NewJobMetrics(s *Store, c JobMetricsConfig) *JobMetrics {
	m := &JobMetrics{store: s, max: c.Max, lookback: map[uuid.UUID]*lookback{}}
	for _, labels := range c.Selectors {
		text, _ := json.Marshal(labels) // of texts never fails
		m.selectors = append(m.selectors, string(text))
	}
	return m
}

// jobFigures is what a scrape reports about a job.
type jobFigures struct {
	id           uuid.UUID
	tenant, name string
	success      *time.Time     // nil: no success is known
	duration     *time.Duration // nil: no run that ended was ever sent
	failures     int
}

var (
	jobLabels      = []string{"tenant", "job"}
	jobSuccessDesc = prometheus.NewDesc("punctual_job_last_success_timestamp_seconds",
		"When the job's newest run that succeeded ended, on any replica; absent while there is none. Notices do not count.",
		jobLabels, nil)
	jobDurationDesc = prometheus.NewDesc("punctual_job_last_duration_seconds",
		"How long the last attempt of the job's newest run that has ended took.",
		jobLabels, nil)
	jobFailuresDesc = prometheus.NewDesc("punctual_job_consecutive_failures",
		"Runs of the job since its newest success that died or are being retried, counted up to 100.",
		jobLabels, nil)
	jobLeftOutDesc = prometheus.NewDesc("punctual_job_metrics_left_out",
		"Jobs that --job-metrics selects and that have no series because of --job-metrics-max, counted up to 10,000.",
		nil, nil)
)

// Describe implements prometheus.Collector.
func (m *JobMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- jobSuccessDesc
	ch <- jobDurationDesc
	ch <- jobFailuresDesc
	ch <- jobLeftOutDesc
}

// Collect implements prometheus.Collector. While the database does not answer, it reports nothing.
func (m *JobMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.read) > jobMetricsAge {
		ctx, cancel := context.WithTimeout(context.Background(), jobMetricsTimeout)
		defer cancel()
		if err := m.look(ctx); err != nil {
			m.store.Options.Log.Warn("the metrics of jobs cannot be read", "error", err)
			return
		}
		m.read = time.Now()
	}
	gauge(ch, jobLeftOutDesc, float64(m.leftOut))
	for _, j := range m.jobs {
		gauge(ch, jobFailuresDesc, float64(j.failures), j.tenant, j.name)
		if j.success != nil {
			gauge(ch, jobSuccessDesc, float64(j.success.UnixMicro())/1e6, j.tenant, j.name)
		}
		if j.duration != nil {
			gauge(ch, jobDurationDesc, j.duration.Seconds(), j.tenant, j.name)
		}
	}
}

// look reads the figures of all selected jobs.
func (m *JobMetrics) look(ctx context.Context) error {
	jobs, err := m.selected(ctx)
	if err != nil {
		return fmt.Errorf("selecting jobs: %w", err)
	}
	m.leftOut = max(0, len(jobs)-m.max)
	if m.leftOut > 0 && !m.told {
		m.store.Options.Log.Warn(
			"--job-metrics selects more jobs than --job-metrics-max allows; the newest of them have no series",
			"max", m.max, "left_out", m.leftOut)
	}
	m.told = m.leftOut > 0
	jobs = jobs[:len(jobs)-m.leftOut]
	if err := m.newest(ctx, jobs); err != nil {
		return fmt.Errorf("reading the newest runs: %w", err)
	}
	if err := m.further(ctx, jobs); err != nil {
		return fmt.Errorf("reading older runs: %w", err)
	}
	m.jobs = jobs
	return nil
}

// One-shots are left out because each has one run. The limit is inside the CTE, so that labels that nearly all jobs
// have cost no more than others. The condition names the unwanted states: with the wanted states, active and paused,
// Postgres would read an index on the names of those jobs from end to end.
const selectMeasured = `
WITH chosen AS MATERIALIZED (
	SELECT j.id, j.tenant, j.name
	FROM unnest($1::text[]) w(labels)
	JOIN punctual.jobs j ON j.labels <> '{}' AND j.labels @> w.labels::jsonb
	WHERE j.state <> 'deleted' AND j.kind NOT IN ('at', 'delay')
	  AND NOT EXISTS (SELECT FROM punctual.schedules s WHERE s.job_id = j.id AND s.completed_at IS NOT NULL)
	LIMIT $2)
SELECT DISTINCT c.id, t.name, c.name FROM chosen c JOIN punctual.tenants t ON t.id = c.tenant ORDER BY c.id`

// selected returns the jobs that any of the selectors selects, oldest first.
func (m *JobMetrics) selected(ctx context.Context) ([]jobFigures, error) {
	rows := pg.Query(ctx, m.store.DB.Callers, selectMeasured, m.selectors, m.max+leftOutCounted)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (j jobFigures, err error) {
		return j, row.Scan(&j.id, &j.tenant, &j.name)
	})
}

// ofJob is the key of the runs of a job that is a row w.
var ofJob = days.Job(`w.id`)

// The newest runs of each job, by the index on (job_id, id), and no further back than its newest known success.
// Most jobs are healthy, and for them that is a run or two.
func selectNewest(w days.Window) string {
	return `
SELECT w.id, r.id, r.status, r.attempt, coalesce(r.reason, ''), r.started_at, r.finished_at
FROM unnest($1::uuid[], $2::uuid[]) w(id, known)
CROSS JOIN LATERAL (
	SELECT * FROM punctual.runs r
	WHERE ` + ofJob.From(`r`, `w.known`) + ` AND ` + w.Of(`r`, ofJob) + ` AND r.step IS NULL
	` + ofJob.Order(`r`, days.NewestFirst) + ` LIMIT $3) r
ORDER BY w.id, r.id DESC`
}

// The newest success of each job among a limited number of runs older than a given run.
func selectFurther(w days.Window) string {
	return `
SELECT w.id, f.runs, f.oldest, f.success, f.finished_at
FROM unnest($1::uuid[], $2::uuid[]) w(id, below)
CROSS JOIN LATERAL (
	SELECT count(*) AS runs, (array_agg(r.id ORDER BY r.id))[1] AS oldest,
	       (array_agg(r.id ORDER BY r.id DESC) FILTER (WHERE r.status = 'succeeded'))[1] AS success,
	       (array_agg(r.finished_at ORDER BY r.id DESC) FILTER (WHERE r.status = 'succeeded'))[1] AS finished_at
	FROM (SELECT r.id, r.status, r.finished_at FROM punctual.runs r
	      WHERE ` + ofJob.Below(`r`, `w.below`) + ` AND ` + w.Of(`r`, ofJob) + ` AND r.step IS NULL
	      ` + ofJob.Order(`r`, days.NewestFirst) + ` LIMIT $3) r) f`
}

// measuredRun is what the metrics need to know about a run.
type measuredRun struct {
	job, id             uuid.UUID
	status              domain.Status
	attempt             int
	reason              domain.Reason
	startedAt, finished *time.Time
}

// failing reports whether the run has died, or has failed and is to be retried. While the run waits, attempt counts the
// attempts made so far; while it is sent, attempt includes the one in flight.
func (r measuredRun) failing() bool {
	switch r.status {
	case domain.StatusDead:
		return true
	case domain.StatusPending, domain.StatusRetrying:
		return r.attempt > 0
	case domain.StatusRunning:
		return r.attempt > 1
	}
	return false
}

// took returns how long the last attempt of an ended run took. It returns false for a run that ended while it waited.
func (r measuredRun) took() (time.Duration, bool) {
	ended := r.status == domain.StatusSucceeded ||
		r.status == domain.StatusDead && r.reason != domain.ReasonExpired && r.reason != domain.ReasonUnreachable
	if !ended || r.startedAt == nil || r.finished == nil {
		return 0, false
	}
	return r.finished.Sub(*r.startedAt), true
}

// lookback is what is known about a job's past, so that no look has to read it again.
type lookback struct {
	success  uuid.UUID // the newest run known to have succeeded
	ended    time.Time // when that run ended
	took     time.Duration
	timed    bool      // took is known
	low, top uuid.UUID // all runs from low to top have been read, and none of them had succeeded
	whole    bool      // no unread run is between success and low, or below low if success is unknown
}

// note adds a job's newest runs, newest first, and returns how many of them are failing. The runs reach down to the
// job's success, or they are as many as one look reads.
func (l *lookback) note(runs []measuredRun, most int) (failures int) {
	timed := false
	for _, r := range runs {
		if took, ok := r.took(); ok && !timed {
			l.took, l.timed, timed = took, true, true
		}
		if r.status == domain.StatusSucceeded && r.finished != nil {
			*l = lookback{success: r.id, ended: *r.finished, took: l.took, timed: l.timed, whole: true}
			return failures
		}
		if r.failing() {
			failures++
		}
	}
	if len(runs) == 0 {
		l.whole = true
		return 0
	}
	newest, oldest := runs[0].id, runs[len(runs)-1].id
	switch {
	case len(runs) < most:
		l.whole, l.low = true, oldest
	case l.low == uuid.Nil || pg.CompareIDs(oldest, l.top) > 0: // there may be unread runs in between
		l.whole, l.low = false, oldest
	}
	l.top = newest
	return failures
}

// newest reads the newest runs of the jobs into their figures.
func (m *JobMetrics) newest(ctx context.Context, jobs []jobFigures) error {
	past := make(map[uuid.UUID]*lookback, len(jobs))
	ids := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		l := m.lookback[j.id]
		if l == nil {
			l = &lookback{}
		}
		past[j.id], ids[i] = l, j.id
	}
	m.lookback = past
	runs := map[uuid.UUID][]measuredRun{}
	search := days.Search{Index: days.All}
	_, err := search.Back(ctx, m.store.DB.Callers, func(
		ctx context.Context, q pg.Querier, w days.Window,
	) (enough bool, err error) {
		known := pg.Column(ids, func(id uuid.UUID) uuid.UUID { return past[id].known() })
		var b pgx.Batch
		b.Queue(days.InOrder)
		b.Queue(selectNewest(w), ids, known, newestRuns).Query(func(rows pgx.Rows) error {
			var r measuredRun
			return pg.Each(rows, []any{&r.job, &r.id, &r.status, &r.attempt, &r.reason, &r.startedAt, &r.finished}, func() {
				runs[r.job] = append(runs[r.job], r)
			})
		})
		err = q.SendBatch(ctx, &b).Close()
		ids = slices.DeleteFunc(ids, func(id uuid.UUID) bool { return past[id].enough(runs[id], w) })
		return len(ids) == 0, err
	})
	for i := range jobs {
		found := runs[jobs[i].id]
		jobs[i].failures = past[jobs[i].id].note(found[:min(len(found), newestRuns)], newestRuns)
	}
	return err
}

// known is the run below which the newest runs need not be read again: the newest success, or the first run of all.
func (l *lookback) known() uuid.UUID {
	if l.success == uuid.Nil && l.whole {
		return l.low
	}
	return l.success
}

// enough reports whether the newest runs of a job are read, as far as they are needed, down to the beginning of a
// window.
func (l *lookback) enough(runs []measuredRun, w days.Window) bool {
	known := l.known()
	return len(runs) >= newestRuns || known != uuid.Nil && !domain.IDTime(known).Before(w.From) ||
		slices.ContainsFunc(runs, func(r measuredRun) bool { return r.status == domain.StatusSucceeded })
}

// further looks for the newest success of those jobs whose newest runs include none. Each look reads a part of the way
// back, and the next look goes on from there: a job that fails every second must not make each scrape read a month of
// runs.
func (m *JobMetrics) further(ctx context.Context, jobs []jobFigures) error {
	below := map[uuid.UUID]uuid.UUID{}
	for _, j := range jobs {
		if l := m.lookback[j.id]; !l.whole {
			below[j.id] = l.low
		}
	}
	if len(below) > 0 {
		if err := m.lookBack(ctx, below, max(newestRuns, furtherRuns/len(below))); err != nil {
			return err
		}
	}
	for i := range jobs {
		l := m.lookback[jobs[i].id]
		if l.success != uuid.Nil {
			jobs[i].success = &l.ended
		}
		if l.timed {
			jobs[i].duration = &l.took
		}
	}
	return nil
}

// lookBack looks for the newest success of jobs among as many runs of each as most, older than a given run of the job.
func (m *JobMetrics) lookBack(ctx context.Context, below map[uuid.UUID]uuid.UUID, most int) error {
	type figures struct {
		runs            int
		oldest, success *uuid.UUID
		ended           *time.Time
	}
	found := map[uuid.UUID]figures{}
	search := days.Search{Index: days.All}
	for _, id := range below {
		search.Until = slices.MaxFunc([]time.Time{search.Until, domain.IDTime(id)}, time.Time.Compare)
	}
	_, err := search.Back(ctx, m.store.DB.Callers, func(
		ctx context.Context, q pg.Querier, w days.Window,
	) (enough bool, err error) {
		var job uuid.UUID
		var f figures
		jobs, still := slices.Collect(maps.Keys(below)), map[uuid.UUID]uuid.UUID{}
		var b pgx.Batch
		b.Queue(days.InOrder)
		from := pg.Column(jobs, func(id uuid.UUID) uuid.UUID { return below[id] })
		b.Queue(selectFurther(w), jobs, from, most).Query(func(rows pgx.Rows) error {
			return pg.Each(rows, []any{&job, &f.runs, &f.oldest, &f.success, &f.ended}, func() {
				f.runs += found[job].runs
				f.oldest = cmp.Or(f.oldest, found[job].oldest)
				found[job] = f
				if f.success == nil && f.runs < most {
					still[job] = below[job]
				}
			})
		})
		err = q.SendBatch(ctx, &b).Close()
		below = still
		return len(below) == 0, err
	})
	for job, f := range found {
		m.lookback[job].extend(f.oldest, f.success, f.ended, f.runs < most)
	}
	return err
}

// extend adds what was found below low. end says that there are no older runs.
func (l *lookback) extend(oldest, success *uuid.UUID, ended *time.Time, end bool) {
	switch {
	case success != nil && ended != nil && pg.CompareIDs(*success, l.success) >= 0:
		l.success, l.ended, l.whole = *success, *ended, true
	case end || oldest == nil || pg.CompareIDs(*oldest, l.success) <= 0:
		l.whole = true
	default:
		l.low = *oldest
	}
}
