package domain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Runs that need any of a few limits come, start and end, in any order of claims. A limit never has more holders than
// it allows, no second has more starts, and everything has started in the end.
func TestLimitsHoldAndNothingStarves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newLimitWorld(seed).run(t) })
	}
}

type limitedRun struct {
	turn   Turn
	due    time.Time
	limits Limits
	ends   time.Time // zero: it has not started
	waits  *Limit
}

type limitWorld struct {
	random *rand.Rand
	now    time.Time
	limits Limits
	runs   []*limitedRun
	starts map[*Limit][]time.Time
}

func newLimitWorld(seed uint64) *limitWorld {
	w := &limitWorld{random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), starts: map[*Limit][]time.Time{}}
	for i := range 3 {
		l := &Limit{Name: fmt.Sprint(i), MaxRunning: w.random.IntN(3), Holders: map[uuid.UUID]bool{}}
		if l.MaxRunning == 0 || w.random.IntN(3) == 0 {
			l.PerSecond = 1 + w.random.IntN(5)
		}
		w.limits = append(w.limits, l)
	}
	return w
}

func (w *limitWorld) come() {
	r := &limitedRun{turn: Turn{NewRunID(w.now), int16(w.random.IntN(4))}, due: w.now}
	for _, l := range w.limits {
		if w.random.IntN(2) == 0 {
			r.limits = append(r.limits, l)
		}
	}
	w.runs = append(w.runs, r)
}

// claim decides about a run as a claim of it does.
func (w *limitWorld) claim(r *limitedRun) {
	if !r.ends.IsZero() {
		return
	}
	if r.waits = r.limits.Full(r.turn, w.now, false); r.waits != nil {
		r.limits.Wait(r.turn, r.waits, w.now, r.due)
		return
	}
	for _, l := range r.limits {
		if !l.Holders[r.turn.Run] {
			w.starts[l] = append(w.starts[l], w.now)
		}
	}
	r.limits.Hold(r.turn, w.now, false)
	r.ends = w.now.Add(time.Duration(1+w.random.IntN(20)) * 100 * time.Millisecond)
}

func (w *limitWorld) run(t *testing.T) {
	for tick := 0; tick < 300 || slices.ContainsFunc(w.runs, func(r *limitedRun) bool { return r.ends.IsZero() }); tick++ {
		if tick > 5_000 {
			t.Fatal("a run starves")
		}
		w.now = w.now.Add(100 * time.Millisecond)
		w.runs = slices.DeleteFunc(w.runs, func(r *limitedRun) bool {
			over := !r.ends.IsZero() && !r.ends.After(w.now)
			for _, l := range r.limits {
				if over {
					delete(l.Holders, r.turn.Run)
				}
			}
			return over
		})
		if tick < 300 && w.random.IntN(3) == 0 {
			w.come()
		}
		for _, i := range w.random.Perm(len(w.runs)) {
			w.claim(w.runs[i])
		}
		w.check(t)
	}
}

func (w *limitWorld) check(t *testing.T) {
	t.Helper()
	for _, l := range w.limits {
		if l.MaxRunning > 0 && len(l.Holders) > l.MaxRunning {
			t.Fatalf("limit %s of %d has %d holders", l.Name, l.MaxRunning, len(l.Holders))
		}
		second := slices.DeleteFunc(slices.Clone(w.starts[l]), func(at time.Time) bool {
			return !at.After(w.now.Add(-time.Second))
		})
		if l.PerSecond > 0 && len(second) > l.PerSecond {
			t.Fatalf("limit %s of %d a second had %d starts", l.Name, l.PerSecond, len(second))
		}
		if !slices.IsSortedFunc(l.Waiting, Turn.Compare) {
			t.Fatal("they do not wait in order")
		}
	}
}
