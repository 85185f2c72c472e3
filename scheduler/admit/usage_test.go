package admit

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

// tally is a tenant's usage, as the database would keep it.
type tally struct {
	Usage
	replicas []uuid.UUID
}

func newTally(replicas, concurrent, perSecond int) *tally {
	u := &tally{Usage: Usage{Tenant: 1, Concurrent: concurrent, PerSecond: perSecond, At: time.Unix(1e9, 0)}}
	for range replicas {
		u.replicas = append(u.replicas, uuid.New())
	}
	return u
}

// answer answers a wish and keeps what it changes.
func (u *tally) answer(replica int, w Wish) Answered {
	id := u.replicas[replica]
	a := u.Answer(id, w)
	u.Shares = slices.DeleteFunc(slices.Clone(u.Shares), func(s Share) bool { return s.Replica == id })
	if a.Share != nil {
		u.Shares = append(u.Shares, *a.Share)
	}
	u.StartsAt = a.StartsAt
	return a
}

// However replicas wish, together they never have more slots than the limit. A replica that gives up what the answer
// takes from it comes to have no more than the answer says. With enough wishes every replica that wants a slot gets
// one, even where there are fewer slots than replicas.
func TestReplicasNeverHaveMoreSlotsThanTheLimit(t *testing.T) {
	t.Parallel()
	for range 300 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		n, limit := 1+random.IntN(5), 1+random.IntN(8)
		u := newTally(n, limit, 0)
		busy, had, eager := make([]int, n), make([]int, n), make([]bool, n)
		for i := range eager {
			eager[i] = random.IntN(4) > 0
		}
		for range 400 {
			u.At = u.At.Add(time.Duration(random.IntN(200)) * time.Millisecond)
			i := random.IntN(n)
			busy[i] = random.IntN(busy[i] + 1) // runs end
			w := Wish{Keep: busy[i], Slots: busy[i]}
			if eager[i] {
				w.Slots += random.IntN(6)
				if busy[i] == 0 {
					w.Slots++
				}
			}
			a := u.answer(i, w)
			busy[i] = max(busy[i], a.Slots) // it uses all of its slots at once
			had[i] = max(had[i], a.Slots)
			sum := 0
			for _, s := range u.Shares {
				sum += s.Slots
			}
			if sum > limit || a.Slots > w.Slots || a.Noted != max(a.Slots, w.Keep) || a.Starts != 0 {
				t.Fatalf("%d of %d slots after the wish %+v: %+v (seed %d)", sum, limit, w, a, seed)
			}
		}
		for i := range n {
			if eager[i] && had[i] == 0 {
				t.Errorf("replica %d of %d never had one of %d slots (seed %d)", i, n, limit, seed)
			}
		}
	}
}

// In any span of time replicas start no more than a burst and what the rate allows in it. While they ask often enough,
// they start as many.
func TestReplicasNeverStartMoreThanTheRate(t *testing.T) {
	t.Parallel()
	for range 60 {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		rate := 1 + random.IntN(60)
		burst := max(1, float64(rate)/2)
		u := newTally(3, 0, rate)
		type start struct {
			at time.Time
			n  int
		}
		var starts []start
		began, total := u.At, 0
		for range 300 {
			u.At = u.At.Add(time.Duration(1+random.IntN(40)) * time.Millisecond)
			a := u.answer(random.IntN(3), Wish{Starts: 1 + random.IntN(20)})
			starts, total = append(starts, start{u.At, a.Starts}), total+a.Starts
			if a.Starts == 0 && a.Wait <= 0 {
				t.Fatalf("no start, and no time to wait: %+v (seed %d)", a, seed)
			}
			sum := 0
			for _, s := range slices.Backward(starts) {
				sum += s.n
				if most := burst + float64(rate)*u.At.Sub(s.at).Seconds() + 0.01; float64(sum) > most {
					t.Fatalf("%d starts in %s at %d a second (seed %d)", sum, u.At.Sub(s.at), rate, seed)
				}
			}
		}
		if least := float64(rate) * u.At.Sub(began).Seconds() * 0.8; float64(total) < least {
			t.Errorf("%d starts in %s at %d a second (seed %d)", total, u.At.Sub(began), rate, seed)
		}
	}
}

// A clock that was set back, and a limit that was lifted, leave nothing used up in the future.
func TestNothingStaysUsedUpInTheFuture(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []int{0, 10} {
		u := newTally(1, 0, perSecond)
		u.StartsAt = u.At.Add(time.Hour)
		if a := u.answer(0, Wish{Starts: 5}); a.Starts != 0 || u.StartsAt.After(u.At) {
			t.Errorf("%d a second: %+v, used up until %s", perSecond, a, u.StartsAt)
		}
	}
}

// Where slots are scarce, a replica gives up what is more than an equal share, and the one that has waited longest is
// next.
func TestSlotsGoToTheReplicaThatHasWaitedLongest(t *testing.T) {
	t.Parallel()
	u := newTally(3, 1, 0)
	if a := u.answer(0, Wish{Slots: 1}); a.Slots != 1 {
		t.Fatalf("the only one: %+v", a)
	}
	for i := 1; i < 3; i++ {
		u.At = u.At.Add(10 * time.Millisecond)
		if a := u.answer(i, Wish{Slots: 1}); a.Slots != 0 || a.Share.Wants != 1 {
			t.Fatalf("replica %d with none left: %+v", i, a)
		}
	}
	if a := u.answer(0, Wish{Keep: 1, Slots: 1}); a.Slots != 1 {
		t.Errorf("before two seconds are over: %+v", a)
	}
	u.At = u.At.Add(2 * time.Second)
	u.answer(2, Wish{Slots: 1})
	u.answer(1, Wish{Slots: 1}) // both still ask
	if a := u.answer(0, Wish{Keep: 1, Slots: 1}); a.Slots != 0 || a.Noted != 1 {
		t.Errorf("after two seconds: %+v", a)
	}
	if a := u.answer(0, Wish{}); a.Share != nil {
		t.Errorf("its run has ended: %+v", a)
	}
	if a := u.answer(2, Wish{Slots: 1}); a.Slots != 0 {
		t.Errorf("out of turn: %+v", a)
	}
	if a := u.answer(1, Wish{Slots: 1}); a.Slots != 1 {
		t.Errorf("in turn: %+v", a)
	}
}
