package prove

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/client"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// siege is the load under which the database fails: a herd, jobs that must not overlap although their requests take a
// while, and one-shots whose first attempt fails.
type siege struct {
	herd
	witness        *Witness
	gated, failing int
}

// besiege creates a load that starts in two seconds and lasts the given seconds.
func besiege(t testing.TB, api *client.Client, w *Witness, seconds int) siege {
	t.Helper()
	s := siege{
		herd: herd{
			start:    nextSecond(2 * time.Second),
			oneShots: 40 * seconds,
			within:   time.Duration(seconds) * time.Second,
			cronJobs: 15,
			seconds:  seconds,
		},
		witness: w,
		gated:   10,
		failing: 3 * seconds,
	}
	jobs := s.jobs(w.URL)
	w.Script("/gated", Answer{Delay: 300 * time.Millisecond})
	gated := many(s.gated, "gated", w.URL+"/gated", process.JobSpec{"schedule": everyUntil("1s", s.start, s.end())})
	jobs = append(jobs, inTurn(gated, "forbid", "wait")...)
	for i := range s.failing {
		path := fmt.Sprintf("/fails-once/%d", i)
		w.Script(path, Answer{Status: 500}, Answer{})
		due := s.start.Add(s.within * time.Duration(i) / time.Duration(s.failing))
		jobs = append(jobs, job(fmt.Sprintf("fails-once-%d", i), w.URL+path, process.JobSpec{
			"retry":    map[string]any{"initial_backoff": "100ms"},
			"schedule": oneShot(due),
		}))
	}
	create(t, api, jobs...)
	await(t, "the load", func() bool { return w.Len() > s.gated+s.cronJobs })
	return s
}

// unharmed waits for the end of the load, and checks that the fault harmed no run. Each one was sent once and succeeded
// at its first attempt, or at its second if its first was made to fail, or was skipped because its job must not
// overlap.
func (s siege) unharmed(t testing.TB, dsn string) Facts {
	t.Helper()
	s.outlast(t)
	f := atRest(t, dsn, s.witness)
	verify(t, f, Conditions{SentOnce: true})
	succeeded(t, f)
	if n := len(f.Attempts); n != s.failing {
		t.Errorf("%d attempts did not succeed, want the %d that had to fail", n, s.failing)
	}
	for _, a := range f.Attempts {
		if a.Outcome != "failed" {
			t.Errorf("attempt %d of run %s: %s", a.Number, a.Run, a.Outcome)
		}
	}
	return f
}

// succeeded checks that every run succeeded, or was skipped because its job must not overlap.
func succeeded(t testing.TB, f Facts) {
	t.Helper()
	for _, r := range f.Runs {
		if r.Status != "succeeded" && r.Reason != "overlap" {
			t.Errorf("run %s of %s is %s", r.ID, r.ScheduledFor, r.Status)
		}
	}
}

// stopCalm stops replicas one after the other. Until its turn each must run, must never have been taken for lost, not
// even when another stopped, and must have written at most the given number of lines to its log.
func stopCalm(t testing.TB, lines int, replicas ...*process.Replica) {
	t.Helper()
	for _, r := range replicas {
		neverSaid(t, "declared this replica lost", r)
		if r.Ended() {
			t.Errorf("replica %d has ended", r.PID())
		}
		if n := strings.Count(r.Output(), "\n"); n > lines {
			t.Errorf("replica %d wrote %d lines to its log, want at most %d", r.PID(), n, lines)
		}
		stop(t, r)
	}
}

// named returns dsn with a name for its connections in pg_stat_activity.
func named(dsn, name string) string { return dsn + "&application_name=" + name }

// sample runs a query for one number over and over until stop is called. stop returns the largest number.
func sample(t testing.TB, dsn, sql string, args ...any) (stop func() int) {
	t.Helper()
	conn, err := pgtest.Connect(t.Context(), dsn)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	largest := make(chan int, 1)
	go func() {
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		most, tick := 0, time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var n int
			if err := conn.QueryRow(ctx, sql, args...).Scan(&n); err == nil {
				most = max(most, n)
			}
			<-tick.C
		}
		largest <- most
	}()
	return func() int { cancel(); return <-largest }
}
