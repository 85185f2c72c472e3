package scheduler

import (
	"context"
	"slices"
	"time"

	"punctual/scheduler/admit"
)

// drawTimeout bounds a draw, including the wait for draws of other replicas.
const drawTimeout = 3 * time.Second

// draw asks for slots and starts that tenants lack, and asks nothing while there are enough.
func (s *Scheduler) draw(ctx context.Context) error {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	return s.ask(ctx, s.admission.Limits.Short())
}

// settle returns what was not used since the last heartbeat, and hears what other replicas want. It does not wait for
// a draw under way: that does the same, except for returning idle slots.
func (s *Scheduler) settle(ctx context.Context, draining bool) error {
	for some := range slices.Chunk(s.admission.Limits.All(), admit.MostWishes) {
		if !s.drawing.TryLock() {
			continue
		}
		err := s.ask(ctx, s.admission.Limits.Idle(draining, some))
		s.drawing.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Scheduler) ask(ctx context.Context, wishes []admit.Wish) error {
	if len(wishes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, drawTimeout)
	defer cancel()
	allowances, err := s.store.Draw(ctx, s.replica.ID, wishes)
	if err == nil || len(allowances) > 0 { // some may have been answered all the same
		s.admission.Limits.Take(wishes, allowances)
	}
	return err
}
