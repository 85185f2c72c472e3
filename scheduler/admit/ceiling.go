package admit

import (
	"cmp"
	"context"
	"math"
	"time"

	"punctual/scheduler/domain"
)

// CutEvery is how often this replica claims less, at most, because it lacks something. For so long it claims nothing,
// and requests in flight come back.
const CutEvery = time.Second

// Cut stops claims for a moment. Afterwards the replica may have three quarters of what it has in flight now.
func (w *Slots) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.cutAt) >= CutEvery {
		w.most, w.cutAt = max(1, w.busy()*3/4), now
	}
}

// Grow lets the replica have more in flight again, unless something has been lacking since the last call. It is called
// once a second, so the most in flight doubles in 9 s.
func (w *Slots) Grow(context.Context) {
	w.mu.Lock()
	if w.most > 0 && time.Since(w.cutAt) >= CutEvery {
		if w.most += 1 + w.most/12; w.most >= min(w.total, cmp.Or(w.ceiling, w.total)) {
			w.most = 0
		}
	}
	w.mu.Unlock()
	w.wake()
}

// Spare is how many more runs the replica may have in flight, whatever queues have slots. The lock must be held.
func (w *Slots) Spare() int {
	if w.most > 0 && time.Since(w.cutAt) < CutEvery {
		return 0
	}
	return max(0, cmp.Or(w.most, w.ceiling, math.MaxInt)-w.busy())
}

// busy counts the slots of all queues that are taken, promised or lent. The lock must be held.
func (w *Slots) busy() (n int) {
	for i := range w.queues {
		q := &w.queues[i]
		n += q.lent
		for of := range domain.WorkKinds {
			n += q.inFlight[of] + q.promised[of]
		}
	}
	return n
}
