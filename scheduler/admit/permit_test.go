package admit

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// A request that takes long has lent its worker slot to another run. Its end takes no slot from that run.
func TestAPermitWhoseSlotWasLentGivesBackTheLoan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(occupied([]int{4}), slog.New(slog.DiscardHandler), func() {})
		a := domain.Assignment{
			Job: compiled(t, `{}`), Lane: jobspec.PriorityNormal.Lane(1), Attempt: 1, Lease: &domain.Lease{},
		}
		var permits []*Permit
		for range 4 {
			p := s.Enter(a, time.Now())
			if wait := p.Admit(a, time.Now()); wait != nil {
				t.Fatalf("held back: %+v", wait)
			}
			permits = append(permits, p)
		}
		time.Sleep(2 * time.Minute)
		if s.Lend() == 0 {
			t.Fatal("nothing was lent")
		}
		for _, p := range permits {
			p.End(wire.Result{Cancelled: true}, true)
			p.Release()
		}
		if q := s.Slots.queues[0]; q.lent != 0 || q.free() != 4 {
			t.Errorf("%d slots are lent and %d are free, want none and 4", q.lent, q.free())
		}
	})
}
