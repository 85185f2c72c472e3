package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/forecast"
	"punctual/store/pg"
)

func BenchmarkBeside(b *testing.B) {
	s := openBench(b)
	manyJobs(b, s, 1_000_000)
	rep := scheduler.Replica{ID: uuid.New(), Host: "h", Version: "x", Queues: map[string]int{"default": 100}}
	if _, err := s.Register(b.Context(), rep); err != nil {
		b.Fatal(err)
	}
	measure := func(what string, d time.Duration) {
		var took []time.Duration
		for began := time.Now(); time.Since(began) < d; {
			t := time.Now()
			ctx := pg.Runs.In(b.Context())
			if _, err := s.Renew(ctx, rep.ID, false); err != nil {
				b.Fatal(err)
			}
			if _, err := s.db.Pool().Exec(ctx, `UPDATE punctual.schedules SET next_run_at = next_run_at WHERE job_id IN (SELECT job_id FROM punctual.schedules WHERE enabled AND lane = 5 AND next_run_at <= now() + interval '1 hour' ORDER BY next_run_at LIMIT 100 FOR UPDATE SKIP LOCKED)`); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(t))
			time.Sleep(20 * time.Millisecond)
		}
		slices.Sort(took)
		fmt.Println(what, len(took), "p50", took[len(took)/2], "p99", took[len(took)*99/100], "max", took[len(took)-1])
	}
	measure("alone", 8*time.Second)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			t := time.Now()
			now := t.UTC().Truncate(time.Minute)
			s.Jobs.Forecast(ctx, pg.Everybody, forecast.Window{From: now, To: now.AddDate(0, 0, 1), Step: time.Minute})
			fmt.Println("forecast", time.Since(t))
		}
	}()
	measure("beside", 12*time.Second)
	cancel()
	<-done
	measure("alone", 8*time.Second)
	for b.Loop() {
	}
}
