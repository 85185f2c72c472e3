//prove:replicas

package prove

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// A replica stops. Its requests get `--drain-timeout` to finish, and another replica repeats the others.
func TestAStoppingReplicaFinishesWhatFitsAndInterruptsTheRest(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/slow", Answer{Hang: true})
	w.Script("/stuck", Answer{Hang: true})
	const slow, drain = 10, 4 * time.Second
	first := serve(t, dsn, "--drain-timeout="+drain.String())
	create(t, first.API,
		job("stuck", w.URL+"/stuck", process.JobSpec{"timeout": "5m", "retry": map[string]any{"max_attempts": 1}}))
	create(t, first.API, many(slow, "slow", w.URL+"/slow", process.JobSpec{"timeout": "5m"})...)
	trigger(t, first.API, "stuck")
	for i := range slow {
		trigger(t, first.API, fmt.Sprint("slow-", i))
	}
	await(t, "all requests in flight", func() bool { return len(w.At("/stuck")) == 1 && len(w.At("/slow")) == slow })

	second := serve(t, dsn)
	asked := time.Now()
	must(t, first.Signal(syscall.SIGTERM))
	w.Release("/slow") // the answer comes within the drain
	stop(t, first)
	if took := time.Since(asked); took < drain-100*time.Millisecond || took > drain+takeover {
		t.Errorf("the stop took %s; its drain timeout was %s", took, drain)
	}
	await(t, "the interrupted attempt elsewhere", func() bool { return len(w.At("/stuck")) == 2 })
	if handed := w.At("/stuck")[1].At.Sub(asked); handed > drain+takeover {
		t.Errorf("the interrupted attempt was made again %s after the stop was asked for; the drain timeout was %s", handed,
			drain)
	}
	w.Release("/stuck")

	f := atRest(t, dsn, w)
	verify(t, f, Conditions{SentOnce: true})
	for _, q := range w.At("/slow") {
		if q.Status != 200 {
			t.Errorf("a request in flight that fitted in the drain was cut off: %+v", q)
		}
	}
	if len(f.Attempts) != 1 || f.Attempts[0].Outcome != "interrupted" {
		t.Errorf("attempts that did not succeed: %+v, want one interrupted", f.Attempts)
	}
	for _, r := range f.Runs {
		if r.Status != "succeeded" || r.Attempt != 1 {
			t.Errorf("run %s is %s at attempt %d; max_attempts was 1, and an interruption does not count", r.ID, r.Status,
				r.Attempt)
		}
	}
	stop(t, second)
}

// A draining replica is not ready, but its API answers.
func TestADrainingReplicaIsNotReadyButAnswers(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	w.Script("/stuck", Answer{Hang: true})
	r := serve(t, dsn)
	create(t, r.API, job("stuck", w.URL+"/stuck", nil))
	trigger(t, r.API, "stuck")
	await(t, "the request", func() bool { return w.Len() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(t.Context()) }()
	await(t, "/readyz to say that it drains", func() bool {
		status, _ := r.API.Do(t.Context(), "GET", "/readyz", nil, nil)
		return status == 503
	})
	do[any](t, r.API, "GET", "/v1/jobs/stuck", nil)
	w.Release("/stuck")
	if err := within(t, "the end of the replica", stopped); err != nil {
		t.Error(err)
	}
	verify(t, atRest(t, dsn, w), Conditions{SentOnce: true, AllSucceed: true})
}

// A replica that is stopped while it registers leaves no row behind.
func TestAReplicaStoppedWhileItRegistersLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stop(t, serve(t, dsn)) // creates the schema
	conn, other := connect(t, dsn), connect(t, dsn)
	tx, err := conn.Begin(t.Context())
	must(t, err)
	if _, err := tx.Exec(t.Context(), `LOCK punctual.replicas`); err != nil {
		t.Fatal(err)
	}
	// It is not ready before it has registered, so the test does not wait for that.
	r, err := process.Launch(binary(t), []string{"DATABASE_URL=" + dsn}, "serve", "--listen=127.0.0.1:0", "--auth=none")
	must(t, err)
	watch(t, r)
	waits := func() bool {
		return query[bool](t, other, `
			SELECT EXISTS (
			    SELECT FROM pg_stat_activity
			    WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO punctual.replicas%'
			      AND datname = current_database())`)
	}
	await(t, "the registration to wait for the table", waits)
	must(t, r.Signal(syscall.SIGTERM))
	await(t, "the registration to be given up", func() bool { return !waits() })
	must(t, tx.Rollback(t.Context()))
	if code := ended(t, "the replica", r); code != 0 {
		t.Errorf("exit code %d:\n%s", code, r.Output())
	}
	if n := query[int](t, other, `SELECT count(*) FROM punctual.replicas`); n != 0 {
		t.Errorf("%d replicas are left", n)
	}
}
