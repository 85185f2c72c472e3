package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/internal/process"
)

// Targets of a page: its p95 on the server, and what it sends, compressed as browsers ask for it.
var (
	pageTime = atMost(200) // ms
	pageSize = atMost(100) // kB
)

// insertDeaths makes some of the newest runs dead, each with its attempt and its dead letter: runs of a few jobs, for a
// few reasons, as after an outage.
const insertDeaths = `
WITH chosen AS (
	SELECT r.id, r.job_id, row_number() OVER (ORDER BY r.id DESC) AS n
	FROM (SELECT id, job_id FROM punctual.runs ORDER BY id DESC LIMIT $1 * 5) r),
dead AS (
	UPDATE punctual.runs r
	SET status = 'dead', reason = (ARRAY['http_5xx', 'timeout', 'connect'])[1 + c.n % 3], http_status = 503,
	    error = 'the target answered 503'
	FROM chosen c
	WHERE r.id = c.id AND c.n % 5 = 0
	RETURNING r.*),
tried AS (
	INSERT INTO punctual.attempts (run_id, number, fence, started_at, finished_at, outcome, reason, http_status, error)
	SELECT id, 1, fence, started_at, finished_at, 'failed', reason, 503, error FROM dead)
INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, died_at, trigger,
	reason, attempts, http_status, error)
SELECT d.id, d.job_id, d.tenant, j.name, d.job_version, d.scheduled_for, d.finished_at, d.trigger,
       d.reason, 1, 503, d.error
FROM dead d JOIN punctual.jobs j ON j.id = d.job_id`

// runPages measures how long the pages for people take, and how large they are, with many jobs and runs.
func runPages(ctx context.Context, l *lab) {
	f := l.field(ctx)
	defer f.close()
	l.must(f.rest(ctx, 1, l.Sizes.PageJobs))
	l.must(f.history(ctx, l.Sizes.PageRuns))
	if _, err := f.pool.Exec(ctx, insertDeaths, l.Sizes.PageDeaths); err != nil {
		l.must(fmt.Errorf("seeding dead letters: %w", err))
	}
	l.exec(ctx, `ANALYZE punctual.dead_letters, punctual.attempts`)
	l.must(f.settle(ctx))
	replica := l.serve(ctx)
	l.counted(ctx)
	pages := l.pages(ctx)
	taken := make([][]float64, len(pages))
	sizes := make([]float64, len(pages))
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for round := range l.Sizes.PageTimes {
		if round%10 == 0 {
			l.say("round %d of %d: %d pages", round+1, l.Sizes.PageTimes, len(pages))
		}
		for i, p := range pages { // each round looks at all pages, as people do
			began := time.Now()
			size, err := look(ctx, client, replica, p.path)
			l.must(err)
			taken[i] = append(taken[i], float64(time.Since(began).Microseconds())/1000)
			sizes[i] = max(sizes[i], float64(size)/1000)
		}
	}
	for i, p := range pages {
		l.figure(p.name+", p50", "ms", nil, quantile(taken[i], 0.5))
		l.figure(p.name+", p95", "ms", pageTime, quantile(taken[i], 0.95))
		l.figure(p.name+", size", "kB", pageSize, sizes[i])
	}
}

// counted waits until the replica has counted the last 24 hours for the overview.
func (l *lab) counted(ctx context.Context) {
	l.say("waiting until the last 24 hours are counted")
	l.must(await(ctx, "the last 24 hours to be counted", 200*time.Millisecond, func() (bool, error) {
		return tryQuery[bool](ctx, l, `
			SELECT count(*) >= 24 FROM punctual.counted_hours WHERE shown > 0 AND hour > now() - interval '25 h'`)
	}))
}

// pages returns the pages. Those of a job and of a run are of one with a failure.
func (l *lab) pages(ctx context.Context) []page {
	var job, reason string
	var run, dead uuid.UUID
	if err := l.conn.QueryRow(ctx, `
		SELECT d.job_name, d.reason, d.run_id, r.id
		FROM punctual.dead_letters d JOIN punctual.runs r ON r.job_id = d.job_id AND r.status = 'succeeded'
		ORDER BY d.run_id DESC, r.id DESC LIMIT 1`).Scan(&job, &reason, &dead, &run); err != nil {
		l.must(fmt.Errorf("choosing a job: %w", err))
	}
	at := l.now().UTC()
	hour, day := at.Add(-time.Hour).Format(time.RFC3339), at.Add(-24*time.Hour).Format(time.RFC3339)
	its := func(name, path string) page {
		path = strings.NewReplacer("{job}", job, "{prefix}", job[:len(job)-2], "{reason}", reason, "{run}", run.String(),
			"{dead}", dead.String(), "{hour}", hour, "{day}", day).Replace(path)
		return page{name, path}
	}
	return []page{
		its("overview", "/"), its("jobs", "/jobs"), its("jobs by label", "/jobs?search=team%3Dteam-7"),
		its("jobs by name", "/jobs?search=name:{prefix}"), its("failing jobs", "/jobs?search=state:failing"),
		its("paused jobs", "/jobs?search=state:paused"), its("overdue jobs", "/jobs?search=state:overdue"),
		its("jobs by text", "/jobs?search=nothing-like-this"), its("job", "/jobs/{job}"),
		its("job, explained", "/jobs/{job}?at={hour}"), its("job's definition", "/jobs/{job}/definition"),
		its("job's changes", "/jobs/{job}/changes"), its("job's notices", "/jobs/{job}/notices"),
		its("job's form", "/jobs/{job}/edit"), its("backfill", "/jobs/{job}/backfill"),
		its("runs", "/runs"), its("dead runs", "/runs?status=dead"), its("runs by job", "/runs?job={job}"),
		its("runs of a day", "/runs?from={day}"), its("late runs of a day", "/runs?late=true&from={day}"),
		its("run", "/runs/{run}"), its("dead run", "/runs/{dead}"), its("dead letters", "/dead-letters"),
		its("dead letters by reason", "/dead-letters?reason={reason}"), its("each dead letter", "/dead-letters?each=1"),
		its("operations", "/operations"), its("timeline of an hour", "/timeline"),
		its("timeline of a day", "/timeline?span=24h"), its("timeline by queue", "/timeline?by=queue"),
		its("forecast", "/forecast"), its("queues", "/queues"), its("audit log", "/audit"), its("settings", "/settings"),
		its("new job", "/new"),
	}
}

// page is a page to look at.
type page struct{ name, path string }

// look gets a page, and returns how many bytes it has on the wire.
func look(ctx context.Context, client *http.Client, replica *process.Replica, path string) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, replica.API.URL+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "text/html")
	request.Header.Set("Accept-Encoding", "gzip")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return n, err
}
