//prove:reports

package prove

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/process"
)

// fragile is a target that does its work and completes the run in one transaction, and dies a lot.
type fragile struct {
	dsn             string
	few             chan struct{} // bounds its connections
	requests, kills atomic.Int64
}

func (f *fragile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.few <- struct{}{}
	defer func() { <-f.few }()
	f.requests.Add(1)
	status, end := http.StatusServiceUnavailable, rand.IntN(8)
	switch err := f.work(context.WithoutCancel(r.Context()), r.Header, end < 4); {
	case end < 6:
		f.kills.Add(1)
		panic(http.ErrAbortHandler) // without an answer
	case err != nil: // another attempt does the work, or has done it
	case end == 6:
		status = http.StatusInternalServerError
	default:
		status = http.StatusOK
	}
	w.WriteHeader(status)
}

// work does the work of an attempt. A target that dies leaves its connection without a commit.
func (f *fragile) work(ctx context.Context, attempt http.Header, dies bool) error {
	conn, err := pgtest.Connect(ctx, f.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	run, fence := attempt.Get("Punctual-Run"), attempt.Get("Punctual-Fencing-Token")
	for _, sql := range []string{
		`INSERT INTO public.effects VALUES ($1::text::uuid, $2::text::bigint)`,
		`SELECT shop_jobs.complete(run => $1::text::uuid, fencing_token => $2::text::bigint, result => '{"rows": 7}')`,
	} {
		if _, err := tx.Exec(ctx, sql, run, fence); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.1 * random())`); err != nil || dies {
		return err
	}
	return tx.Commit(ctx)
}

// A thousand kills of targets and replicas around commits. Each run's work is done once, and the run succeeds.
//
// More than a thousand, and once by the target's own table. Targets die before or after the commit of work that they
// report, close the connection or answer 500.
func TestAThousandKillsNeitherDoubleNorLoseWorkThatIsReported(t *testing.T) {
	t.Parallel()
	const runs = 1000
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn)
	super, err := pgx.Connect(t.Context(), pgtest.Server(t).DSN(conn.Config().Database))
	must(t, err)
	execute(t, super, `CREATE SCHEMA shop_jobs AUTHORIZATION `+conn.Config().User)
	must(t, super.Close(t.Context()))
	execute(t, conn, `UPDATE punctual.tenants SET reports_since = now() - interval '1 min'`)
	execute(t, conn, `SELECT punctual.make_schema(1, 'shop_jobs', current_user)`)
	execute(t, conn, `CREATE TABLE public.effects (run uuid, fence bigint)`)
	target := &fragile{dsn: dsn, few: make(chan struct{}, 16)}
	server := httptest.NewServer(target)
	t.Cleanup(server.Close)

	path, err := Build(t.Context(), Variant{})
	must(t, err)
	replicas := []*process.Replica{serveBinary(t, path, dsn, nil), serveBinary(t, path, dsn, nil)}
	create(t, replicas[0].API, job("invoice", server.URL, process.JobSpec{
		"retry": map[string]any{"max_attempts": 50, "initial_backoff": "100ms", "max_backoff": "200ms"},
	}))
	execute(t, conn, `
		SELECT shop_jobs.run_in('invoice', n * interval '30 ms') FROM generate_series(1, $1) n`, runs)
	const doubled = `SELECT count(*) - count(DISTINCT run) FROM public.effects`
	reached := func(n int) bool { // or it has failed
		return query[int](t, conn, `SELECT count(*) FROM punctual.runs WHERE status = 'succeeded'`) >= n ||
			query[int](t, conn, doubled) > 0
	}
	killed := 0
	for next := int64(50); !reached(runs * 9 / 10); next = target.requests.Load() + 50 {
		await(t, "more requests", func() bool { return target.requests.Load() >= next || reached(runs*9/10) })
		replicas[killed%2].Kill()
		replicas[killed%2] = serveBinary(t, path, dsn, nil)
		killed++
	}
	awaitFor(t, 2*time.Minute, "all runs to succeed", func() bool { return reached(runs) })
	t.Logf("%d kills of the target, %d of replicas, %d requests, %d attempts lost", target.kills.Load(), killed,
		target.requests.Load(), query[int](t, conn, `SELECT count(*) FROM punctual.attempts WHERE outcome = 'lost'`))
	if n := query[int](t, conn, doubled); n != 0 {
		t.Errorf("%d effects are doubled", n)
	}
	if n := query[int](t, conn, `SELECT count(DISTINCT run) FROM public.effects`); n != runs {
		t.Errorf("%d of %d effects are there", n, runs)
	}
	if target.kills.Load() < runs || killed < 5 {
		t.Error("too few kills")
	}
	stop(t, replicas...)
}
