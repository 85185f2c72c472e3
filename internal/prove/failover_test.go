//prove:database

package prove

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/internal/process"
)

// failOver crashes the primary and promotes the standby.
func failOver(t *testing.T, primary, standby *privatepg.Server) {
	t.Helper()
	must(t, primary.Crash())
	pgtest.Promote(t, standby)
}

// replicated waits until the standby has all that the primary has.
func replicated(t *testing.T, primary *privatepg.Server) {
	t.Helper()
	conn := connect(t, primary.DSN("postgres"))
	await(t, "the standby to have the job", func() bool {
		return query[bool](t, conn, `
			SELECT replay_lsn >= $1::text::pg_lsn
			FROM pg_stat_replication`, query[string](t, conn, `SELECT pg_current_wal_lsn()::text`))
	})
}

// lagging returns a primary with an asynchronous standby, the network between them, and a database.
func lagging(t *testing.T) (primary, standby *privatepg.Server, between *pgtest.Proxy, dsn string) {
	t.Helper()
	primary = pgtest.NewServer(t, privatepg.Config{})
	dsn = pgtest.Doomed(t, primary)
	between, from := pgtest.NewProxy(t, primary.TCP("postgres"))
	return primary, pgtest.NewStandby(t, primary, from), between, dsn
}

// Failover to a synchronous standby. Everything is sent once.
func TestASynchronousFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	primary, w := pgtest.NewServer(t, privatepg.Config{}), newWitness(t)
	dsn := pgtest.Doomed(t, primary)
	standby := pgtest.NewStandby(t, primary, "")
	configure(t, primary, `synchronous_standby_names = '*'`)
	both := pgtest.Either(t, dsn, primary, standby)
	fleet := []*process.Replica{serve(t, both), serve(t, both)}
	w.Script("/slow", Answer{Hang: true})
	create(t, fleet[0].API, job("slow", w.URL+"/slow", process.JobSpec{"concurrency_policy": "forbid", "timeout": "5m"}))
	trigger(t, fleet[0].API, "slow")
	s := besiege(t, fleet[0].API, w, 10)
	await(t, "a request in flight", func() bool { return len(w.At("/slow")) == 1 })
	if state := query[string](t, connect(t, primary.DSN("postgres")), `
		SELECT sync_state
		FROM pg_stat_replication`); state != "sync" {
		t.Fatalf("the standby is %s", state)
	}

	failOver(t, primary, standby)
	w.Release("/slow") // its outcome goes to the new primary
	s.outlast(t)
	ready(t, fleet...)
	promoted := pgtest.TCP(t, standby, dsn)
	s.unharmed(t, promoted)
	// A promoted standby is the same database, so the replicas must not have frozen it.
	if !query[bool](t, connect(t, promoted), `
		SELECT frozen_at IS NULL
		    AND system_identifier <> ''
		    AND NOT EXISTS (SELECT FROM punctual.audit_log WHERE action LIKE 'deployment.%')
		FROM punctual.deployment`) {
		t.Error("the failover was taken for a restored database")
	}
	stopCalm(t, 200, fleet...)
}

// Failover to a standby that lags. Only slots inside the lag are sent again, with greater tokens.
//
// With the same run id. Everything written before the lag stays.
func TestAnAsynchronousFailoverRepeatsOnlySlotsInsideTheLag(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	primary, standby, proxy, dsn := lagging(t)
	both := pgtest.Either(t, dsn, primary, standby)
	fleet := []*process.Replica{serve(t, both), serve(t, both)}
	h := herd{start: nextSecond(2 * time.Second), oneShots: 1000, within: 20 * time.Second, cronJobs: 20, seconds: 20}
	create(t, fleet[0].API, h.jobs(w.URL)...)
	once := process.JobSpec{"schedule": oneShot(h.end())}
	create(t, fleet[0].API, job("before-the-lag", w.URL+"/before", once))
	await(t, "the load", func() bool { return w.Len() > h.runs()/10 })
	// A run in flight now may have its outcome inside the lag.
	lag := query[time.Time](t, connect(t, dsn), `
		SELECT least(clock_timestamp(), min(claimed_at))
		FROM punctual.runs
		WHERE status = 'running'`)
	replicated(t, primary)

	proxy.Refuse()
	sent := w.Len()
	create(t, fleet[1].API, job("inside-the-lag", w.URL+"/inside", once))
	await(t, "requests that the standby knows nothing of", func() bool { return w.Len() > sent+100 })
	failOver(t, primary, standby)
	promoted := time.Now()

	h.outlast(t)
	ready(t, fleet...)
	f := atRest(t, pgtest.TCP(t, standby, dsn), w)
	repeated := repeats(t, f, lag, promoted)
	if repeated == 0 {
		t.Error("nothing was sent again: there was no lag")
	}
	if len(w.At("/before")) != 1 {
		t.Errorf("the one-shot from before the lag was sent %d times, want once", len(w.At("/before")))
	}
	t.Logf("%d slots were sent again; the one-shot written inside the lag was sent %d times", repeated,
		len(w.At("/inside")))
	if n := tokensTwice(f); n > 0 {
		t.Errorf("%d fencing tokens were given twice", n)
	}
	tokensGrow(t, f.Requests)
	f.Requests = slices.DeleteFunc(f.Requests, func(q Request) bool {
		return q.At.Before(promoted) && q.At.After(lag) && unrecorded(f, q)
	})
	verify(t, f, Conditions{})
	stopCalm(t, 200, fleet...)
}

// A failover loses a job's newest edit. The next edit gets the same version number, and is sent.
func TestAfterAFailoverNoLostDefinitionIsSent(t *testing.T) {
	t.Parallel()
	w := newWitness(t)
	primary, standby, proxy, dsn := lagging(t)
	r := serve(t, pgtest.Either(t, dsn, primary, standby))
	create(t, r.API, job("edited", w.URL+"/first", nil))
	replicated(t, primary)

	proxy.Refuse()
	do[any](t, r.API, "PUT", "/v1/jobs/edited", job("edited", w.URL+"/lost", nil))
	trigger(t, r.API, "edited")
	await(t, "a request that the standby knows nothing of", func() bool { return len(w.At("/lost")) == 1 })
	failOver(t, primary, standby)
	await(t, "an edit after the failover", func() bool {
		status, _ := r.API.Do(t.Context(), "PUT", "/v1/jobs/edited", job("edited", w.URL+"/kept", nil), nil)
		return status == 200
	})
	trigger(t, r.API, "edited")
	await(t, "the request of the trigger", func() bool { return len(w.At("/kept"))+len(w.At("/lost")) == 2 })
	if n := len(w.At("/kept")); n != 1 {
		t.Errorf("the definition that was lost has been sent")
	}
	stop(t, r)
}

// repeats checks that a slot was sent again only if the standby may have missed it, and always with the same run id. It
// returns the number of such repeats.
func repeats(t *testing.T, f Facts, lag, promoted time.Time) (n int) {
	type slot struct {
		job string
		at  time.Time
	}
	first := map[slot]Request{}
	for _, q := range f.Requests {
		key := slot{q.Job, q.ScheduledFor}
		before, again := first[key]
		if !again {
			first[key] = q
			continue
		}
		n++
		if before.Run != q.Run {
			t.Errorf("job %s: slot %s was sent as run %s and again as run %s", q.Job, clock(q.ScheduledFor), before.Run, q.Run)
		}
		if before.At.Before(lag) || before.At.After(promoted) {
			t.Errorf("job %s: slot %s was sent at %s, outside the lag, and again at %s", q.Job, clock(q.ScheduledFor),
				clock(before.At), clock(q.At))
		}
	}
	return n
}

// unrecorded reports whether the new primary has no record of a request's attempt.
func unrecorded(f Facts, q Request) bool {
	i, found := slices.BinarySearchFunc(f.Runs, q.Run, func(r Run, id uuid.UUID) int {
		return slices.Compare(r.ID[:], id[:])
	})
	return !found || f.Runs[i].Fence == nil || *f.Runs[i].Fence != q.Fence
}

// tokensGrow checks that later requests of a run have greater tokens, including requests that the new primary has no
// record of.
func tokensGrow(t *testing.T, requests []Request) {
	t.Helper()
	last := map[uuid.UUID]Request{}
	for _, q := range requests {
		if before, again := last[q.Run]; again && q.Fence <= before.Fence {
			t.Errorf("run %s was sent under token %d after %d", q.Run, q.Fence, before.Fence)
		}
		last[q.Run] = q
	}
}

// tokensTwice counts the fencing tokens that two requests carried.
func tokensTwice(f Facts) (n int) {
	seen := map[int64]bool{}
	for _, q := range f.Requests {
		if seen[q.Fence] {
			n++
		}
		seen[q.Fence] = true
	}
	return n
}
