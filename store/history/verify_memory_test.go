package history_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store"
	"punctual/store/history"
)

// everySecond writes a job with a slot every second and with n runs, of which the last but one is missing.
func everySecond(ctx context.Context, tb testing.TB, s *store.Store, n int) {
	tb.Helper()
	const job = "019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"
	for _, sql := range []string{
		`SELECT punctual.create_partitions(current_date - 3, current_date)`,
		`INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue) VALUES ('` + job +
			`', 1, 1, 'a', 'active', 'every', 1)`,
		`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
			VALUES ('` + job + `', date_trunc('second', now()), date_trunc('second', now()), 1, 1, 5, true)`,
	} {
		if _, err := s.DB.Callers.Exec(ctx, sql); err != nil {
			tb.Fatal(err)
		}
	}
	_, err := s.DB.Callers.Exec(ctx, `
		WITH stands AS (SELECT scheduled_for AS at FROM punctual.schedules),
		version AS (INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition)
			SELECT $1, 1, at - ($2 + 0.5) * interval '1 s', 'active',
				'{"name":"a","schedule":{"every":"1s"},"target":{"url":"http://localhost/"}}'
			FROM stands)
		INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			attempt, status, trigger, fence)
		SELECT (lpad(to_hex(extract(epoch FROM slot)::bigint * 1000), 12, '0') || '80008000000000000000')::uuid,
			$1, slot, slot, now(), 1, 1, 5, 1, 'succeeded', 'schedule', nextval('punctual.fences')
		FROM stands, generate_series(at - $2 * interval '1 s', at - interval '1 s', interval '1 s') slot
		WHERE slot <> at - interval '2 s'`, uuid.MustParse(job), n)
	Must(tb, err)
	if _, err := s.DB.Callers.Exec(ctx, `ANALYZE punctual.runs`); err != nil {
		tb.Fatal(err)
	}
}

func TestVerifyHoldsNeitherSlotsNorRuns(t *testing.T) {
	const n, bound = 50_000, 1 << 20
	s := OpenStore(t, store.Options{DatabaseURL: pgtest.DSN(t)})
	everySecond(t.Context(), t, s, n)
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, grown := live(), uint64(0)
	now := time.Now()
	summary, err := s.History.Verify(t.Context(), history.VerifyOptions{
		From: now.Add(-72 * time.Hour), To: now, Report: func(v history.Violation) error {
			// By now verify has seen all slots but one.
			if after := live(); v.Kind == history.ViolationMissing && after > before {
				grown = after - before
			}
			return nil
		},
	})
	if err != nil || summary.Slots != n || summary.Kinds[history.ViolationMissing] != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	if grown > bound {
		t.Errorf("it holds %d KiB after %d slots, more than %d", grown>>10, n, bound>>10)
	}
}

func BenchmarkVerify(b *testing.B) {
	s := OpenBench(b)
	const n = 100_000
	everySecond(b.Context(), b, s, n)
	now := time.Now()
	for b.Loop() {
		o := history.VerifyOptions{From: now.Add(-72 * time.Hour), To: now}
		if summary, err := s.History.Verify(b.Context(), o); err != nil ||
			summary.Slots != n {
			b.Fatalf("%+v, %v", summary, err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "slots/s")
}
