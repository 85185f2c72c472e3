package reports_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// Attempts, reports and takeovers race. Work is done as often as runs succeed.
//
//prove:reports
func TestEffectsAreTheRunsThatSucceed(t *testing.T) {
	c := newReporter(t)
	rounds := 200
	if testing.Short() {
		rounds = 15
	}
	c.Create("a", Never, func(d *jobspec.Definition) { d.Retry.MaxAttempts = 3 })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	conns := []*pgx.Conn{c.Connect(), c.Connect()}
	for range rounds {
		c.Trigger("a")
		for range 3 { // attempts
			c.Exec(`UPDATE punctual.ready SET due_at = now()`)
			claimed := c.ClaimReady(1).Runs
			if len(claimed) == 0 {
				break
			}
			a := claimed[0]
			var all sync.WaitGroup
			for _, conn := range conns {
				pause, commits := time.Duration(r.IntN(3000))*time.Microsecond, r.IntN(4) > 0
				all.Go(func() {
					_ = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
						if err := c.workIn(tx, a); err != nil || !commits {
							return errors.Join(err, errors.New("rolled back"))
						}
						_, err := tx.Exec(t.Context(), `SELECT pg_sleep($1)`, pause.Seconds())
						return err
					})
				})
			}
			end, cancels, pause := r.IntN(4), r.IntN(3) == 0, time.Duration(r.IntN(3000))*time.Microsecond
			all.Go(func() {
				select { // let the others begin
				case <-time.After(pause):
				case <-t.Context().Done():
				}
				switch end {
				case 0:
					_, _ = c.Claims.Finish(t.Context(), []domain.Outcome{Failed(a)}, []uuid.UUID{a.Lease.ID})
				case 1:
					_, _ = c.Claims.Finish(t.Context(), []domain.Outcome{Buried(a)}, []uuid.UUID{a.Lease.ID})
				case 2:
					_, _ = c.Claims.Lose(t.Context(), []uuid.UUID{a.Lease.ID}, nil)
				default:
					_, _ = c.Reports.Apply(t.Context())
				}
			})
			if cancels {
				all.Go(func() { _, _ = c.Runs.CancelRun(t.Context(), c.Tenant, a.RunID) })
			}
			all.Wait()
			c.applyReports()
			_, err := c.Claims.Lose(t.Context(), []uuid.UUID{a.Lease.ID}, nil)
			Must(t, err)
		}
	}
	for _, wrong := range Column[string](c.Fixture, `
		SELECT concat_ws(' ', r.id, r.status, r.reason, 'attempt', r.attempt, 'fence', r.fence, r.error, '|',
			(SELECT string_agg(concat(e.fence, ' '), ',') FROM public.effects e WHERE e.run = r.id), '|',
			(SELECT concat_ws(' ', p.fence, p.outcome, p.applied_at) FROM punctual.reports p WHERE p.run_id = r.id), '|',
			(SELECT string_agg(concat_ws(' ', a.number, a.fence, a.outcome, a.reason), ',') FROM punctual.attempts a
				WHERE a.run_id = r.id))
		FROM punctual.runs r
		WHERE (r.status = 'succeeded')::int <> (SELECT count(*) FROM public.effects e WHERE e.run = r.id)`) {
		t.Errorf("a run and its effects: %s", wrong)
	}
	c.WantCount(0, "reports are not applied", `SELECT count(*) FROM punctual.reports WHERE applied_at IS NULL`)
	n := c.Count(`SELECT count(*) FROM public.effects`)
	if t.Logf("%d of %d runs did their work", n, rounds); n == 0 {
		t.Error("no run did its work")
	}
}
