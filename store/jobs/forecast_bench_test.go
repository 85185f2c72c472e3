package jobs_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/forecast"
	"punctual/store"
	"punctual/store/pg"
)

// manyJobs writes n jobs: half of them with cron expressions in five zones, a fifth with one of four intervals, a tenth
// with an interval that begins at an instant of its own, and a fifth one-shots.
func manyJobs(b *testing.B, s *store.Store, n int) {
	b.Helper()
	for _, sql := range []string{
		fmt.Sprintf(`CREATE TABLE public.made AS
			SELECT (lpad(to_hex(extract(epoch FROM now())::bigint * 1000 - %[1]d + i), 12, '0') || '7' ||
					substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid AS id, i,
				CASE WHEN i %% 10 < 5 THEN json_build_object('cron', i %% 60 || ' ' || i / 60 %% 24 || ' * * *', 'timezone', (ARRAY[
						'UTC', 'Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'Australia/Lord_Howe'])[1 + i / 7 %% 5])
					WHEN i %% 10 < 7 THEN json_build_object('every', (ARRAY['1m', '5m', '1h', '90s'])[1 + i / 10 %% 4])
					WHEN i %% 10 < 8 THEN json_build_object('every', '1h', 'starts_at',
						to_char(now() - i * interval '1 s', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
					ELSE json_build_object('at', to_char(now() + i * interval '0.1 s', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
				END AS schedule,
				date_trunc('minute', now()) + (i %% 1440) * interval '1 min' AS slot
			FROM generate_series(1, %[1]d) i`, n),
		`INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
			SELECT id, 1, 1, 'job-' || i, 'active', (ARRAY(SELECT json_object_keys(schedule)))[1], 1 FROM public.made`,
		`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
			SELECT id, slot, slot, 1, 1, 5, true FROM public.made`,
		`INSERT INTO punctual.job_versions (job_id, version, state, definition)
			SELECT id, 1, 'active', json_build_object('name', 'job-' || i, 'labels', json_build_object('team', 'billing'),
				'schedule', schedule, 'target', json_build_object('url', 'https://billing.internal/invoices/' || i,
				'headers', json_build_object('X-Customer', md5(i::text)),
				'body', json_build_object('range', 'yesterday', 'customer', i)), 'retry', json_build_object('max_attempts', 3))
			FROM public.made`,
		`DROP TABLE public.made`,
		`VACUUM ANALYZE punctual.jobs, punctual.schedules, punctual.job_versions`,
	} {
		if _, err := s.DB.Callers.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// heapPeak returns a function that tells how far the heap grew meanwhile, in bytes.
func heapPeak() (peak func() float64) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	runtime.GC()
	before, most, stop, done := heap(), uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				most = max(most, heap())
			}
		}
	}()
	return func() float64 {
		close(stop)
		<-done
		return float64(most) - float64(before)
	}
}

// BenchmarkForecast is the forecast of a million jobs, minute by minute.
func BenchmarkForecast(b *testing.B) {
	s := OpenBench(b)
	manyJobs(b, s, 1_000_000)
	tenant, err := s.Tenants.TenantID(b.Context(), "default")
	Must(b, err)
	for _, c := range []struct {
		name   string
		tenant int32
		days   int
	}{
		{"tenant, a day", tenant, 1},
		{"tenant of no jobs, a day", tenant + 1, 1},
		{"deployment, a day", pg.Everybody, 1},
		{"deployment, a week", pg.Everybody, 7},
	} {
		b.Run(c.name, func(b *testing.B) {
			from := time.Now().UTC().Truncate(time.Minute)
			w := forecast.Window{From: from, To: from.AddDate(0, 0, c.days), Step: time.Minute}
			peak := heapPeak()
			for b.Loop() {
				if f, err := s.Jobs.Forecast(b.Context(), c.tenant, w); err != nil || f.Broken > 0 {
					b.Fatalf("%d jobs cannot be read: %v", f.Broken, err)
				}
			}
			b.ReportMetric(peak()/1e6, "MB-heap")
		})
	}
}
