package scheduler

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/domain"
)

// A request that takes long has lent its worker slot to another run. Its end takes no slot from that run.
func TestAPermitWhoseSlotWasLentGivesBackTheLoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := holding(newFakeStore(), occupied([]int{4}))
		s.log = slog.New(slog.DiscardHandler)
		a := domain.Assignment{
			Job: compiled(t, `{}`), Lane: domain.PriorityNormal.Lane(1), Attempt: 1, Lease: &domain.Lease{},
		}
		var permits []*permit
		for range 4 {
			p := enter(s.slots, s.limits, s.holds, a, time.Now())
			if wait := p.admit(a, time.Now()); wait != nil {
				t.Fatalf("held back: %+v", wait)
			}
			permits = append(permits, p)
		}
		time.Sleep(2 * time.Minute)
		s.lendSlots(t.Context())
		if s.slots.queues[0].lent == 0 {
			t.Fatal("nothing was lent")
		}
		for _, p := range permits {
			p.end(silence, true)
			p.release()
		}
		if q := s.slots.queues[0]; q.lent != 0 || q.free() != 4 {
			t.Errorf("%d slots are lent and %d are free, want none and 4", q.lent, q.free())
		}
	})
}
