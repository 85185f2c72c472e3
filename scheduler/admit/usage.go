package admit

import (
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

const (
	// handOver is how long a replica keeps its slot while others wait for one: when a tenant has fewer slots than
	// replicas, they take turns.
	handOver = 2 * time.Second
	// stillAsks is for how long a replica that has asked for a slot keeps its place among those that wait.
	stillAsks = time.Second
)

// Usage is how much of its limits a tenant has used, as of a moment at which nobody else can use more.
type Usage struct {
	Tenant     int32
	Concurrent int       // max_concurrent_runs; 0: no limit
	PerSecond  int       // max_runs_per_second; 0: no limit
	At         time.Time // the moment, by the database's clock
	// StartsAt is the instant up to which PerSecond is used up (generic cell rate). In the past, it means that starts
	// are left. Zero: nothing was started.
	StartsAt time.Time
	Shares   []Share // of all replicas
}

// Share is a replica's part of Concurrent.
type Share struct {
	Replica uuid.UUID
	Slots   int       // how many runs it may send at once
	Wants   int       // how many more it had work for when it last asked
	Since   time.Time // since when it has had slots or, if it has none, has wanted some
	AskedAt time.Time
}

// Answered is what a wish changes.
type Answered struct {
	Allowance
	StartsAt time.Time // what Usage has from now on
	Share    *Share    // the replica's share from now on; nil: it has none
}

// Answer gives a replica its part of the tenant's limits.
//
// Slots: the replica gets as many as it wishes, of those that the other replicas do not have. When another replica has
// work to do and less than an equal share, this replica has no more than an equal share. When a tenant has fewer slots
// than replicas, a replica gives its slot up after two seconds, and the replica that has waited longest gets the next
// one. Slots that the replica's runs in flight hold stay noted for it.
//
// Starts: each start uses up its part of a second. Time used up is never ahead of now, even when the clock was set
// back, and never further behind than a burst.
func (u Usage) Answer(replica uuid.UUID, w Wish) Answered {
	a := Answered{StartsAt: u.StartsAt}
	a.Tenant, a.Concurrent, a.PerSecond = u.Tenant, u.Concurrent, u.PerSecond
	if u.Concurrent > 0 {
		a.Slots = u.slots(replica, w)
		a.Noted = max(a.Slots, w.Keep)
		a.Share = u.share(replica, a.Noted, max(0, w.Slots-a.Slots))
	}
	switch {
	case u.PerSecond == 0:
		if u.StartsAt.After(u.At) {
			a.StartsAt = time.Time{}
		}
	case u.Concurrent > 0 && a.Slots == 0:
		u.starts(&a, 0)
	default:
		u.starts(&a, w.Starts)
	}
	return a
}

// slots returns how many slots a replica gets.
func (u Usage) slots(replica uuid.UUID, w Wish) int {
	var own *Share
	others, taken := 0, 0
	for i, s := range u.Shares {
		if s.Replica == replica {
			own = &u.Shares[i]
			continue
		}
		others++
		taken += s.Slots
	}
	equal := u.Concurrent / (1 + others)
	gets := min(w.Slots, u.Concurrent-taken)
	if u.scarce(replica, equal) {
		switch {
		case w.Keep == 0 && u.next(replica, own):
			gets = min(gets, max(equal, 1))
		case equal == 0 && own != nil && u.At.Sub(own.Since) < handOver:
			gets = min(gets, w.Keep)
		default:
			gets = min(gets, equal)
		}
	}
	return max(0, gets)
}

// scarce reports whether another replica has work to do and less than an equal share.
func (u Usage) scarce(replica uuid.UUID, equal int) bool {
	return slices.ContainsFunc(u.Shares, func(s Share) bool {
		return s.Replica != replica && s.Wants > 0 && s.Slots < max(1, equal)
	})
}

// next reports whether no other replica without a slot has waited longer.
func (u Usage) next(replica uuid.UUID, own *Share) bool {
	waits := u.At
	if own != nil && own.Slots == 0 {
		waits = own.Since
	}
	return !slices.ContainsFunc(u.Shares, func(s Share) bool {
		return s.Replica != replica && s.Wants > 0 && s.Slots == 0 && u.At.Sub(s.AskedAt) < stillAsks && s.Since.Before(waits)
	})
}

// share returns a replica's share from now on.
func (u Usage) share(replica uuid.UUID, slots, wants int) *Share {
	if slots == 0 && wants == 0 {
		return nil
	}
	now := Share{Replica: replica, Slots: slots, Wants: wants, Since: u.At, AskedAt: u.At}
	for _, s := range u.Shares {
		if s.Replica == replica && (s.Slots > 0) == (slots > 0) {
			now.Since = s.Since
		}
	}
	return &now
}

// starts grants at most the wished number of starts.
func (u Usage) starts(a *Answered, wished int) {
	rate := float64(u.PerSecond)
	burst := seconds(max(1, rate/2) / rate)
	at := jobspec.Earlier(jobspec.Later(u.StartsAt, u.At.Add(-burst)), u.At)
	left := u.At.Sub(at).Seconds() * rate
	a.Starts = min(wished, int(math.Floor(left+1e-6)))
	a.Wait = seconds(max(0, 1-(left-float64(a.Starts))) / rate)
	if a.Starts > 0 || u.StartsAt.After(u.At) {
		a.StartsAt = at.Add(seconds(float64(a.Starts) / rate))
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
