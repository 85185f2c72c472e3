package domain

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Patience is how long a run waits for several limits at once. Then it keeps each limit that it gets, so that runs with
// fewer limits cannot keep it waiting for ever.
const Patience = time.Minute

// Limit is a named limit as a claim reads it under its lock, and as it leaves it.
type Limit struct {
	Name       string
	MaxRunning int       // 0: no bound
	PerSecond  int       // starts; 0: no bound
	StartsAt   time.Time // the instant up to which PerSecond is used up
	Holders    map[uuid.UUID]bool
	Waiting    []Turn // in order; those that hold it are not among them
}

// Turn is the place of a run among those that wait at a limit: by the millisecond for which it was due, then by
// priority. Ordered work comes after all other work: its slots may be of long ago.
type Turn struct {
	Run      uuid.UUID
	Priority int16 // 0 comes first; 3: ordered work
}

const orderedPriority = 3

// Compare orders turns.
func (t Turn) Compare(o Turn) int {
	if is := t.Priority == orderedPriority; is != (o.Priority == orderedPriority) {
		if is {
			return 1
		}
		return -1
	}
	if c := strings.Compare(string(t.Run[:6]), string(o.Run[:6])); c != 0 {
		return c
	}
	if c := int(t.Priority) - int(o.Priority); c != 0 {
		return c
	}
	return strings.Compare(string(t.Run[:]), string(o.Run[:]))
}

// Limits are the limits of one job, sorted by name.
type Limits []*Limit

// Full returns the first of a run's limits that keeps it from starting now; nil: none does. A run that was started
// before holds its limits, and counts in no rate.
func (all Limits) Full(t Turn, now time.Time, again bool) *Limit {
	for _, l := range all {
		if !l.passed(t, again) && l.room(now) <= l.ahead(t) {
			return l
		}
	}
	return nil
}

// Hold gives a run its limits.
func (all Limits) Hold(t Turn, now time.Time, again bool) {
	for _, l := range all {
		if !l.passed(t, again) && l.PerSecond > 0 {
			apart, _ := StartPace(l.PerSecond)
			l.StartsAt = jobspec.Later(l.StartsAt, now).Add(apart)
		}
		l.Holders[t.Run] = true
		l.leave(t)
	}
}

// Wait makes a run wait at one of its limits. A run that has been due for longer than Patience keeps those before it in
// the order of names. As all do so in that order, no two runs wait for what the other keeps.
func (all Limits) Wait(t Turn, at *Limit, now, due time.Time) {
	all.Pass(t)
	if now.Sub(due) > Patience {
		all[:slices.Index(all, at)].Hold(t, now, false)
	}
	i, _ := slices.BinarySearchFunc(at.Waiting, t, Turn.Compare)
	at.Waiting = slices.Insert(at.Waiting, i, t)
}

// Pass makes a run wait at none of its limits.
func (all Limits) Pass(t Turn) {
	for _, l := range all {
		l.leave(t)
	}
}

// passed reports whether a run needs no room at the limit.
func (l *Limit) passed(t Turn, again bool) bool {
	return l.Holders[t.Run] || again && l.MaxRunning == 0
}

// Taken reports whether as many runs hold the limit as may.
func (l *Limit) Taken() bool { return l.MaxRunning > 0 && len(l.Holders) >= l.MaxRunning }

// room is how many runs may start now.
func (l *Limit) room(now time.Time) int {
	room := math.MaxInt
	if l.MaxRunning > 0 {
		room = l.MaxRunning - len(l.Holders)
	}
	if l.PerSecond > 0 {
		room = min(room, l.starts(now))
	}
	return room
}

// StartPace returns the time between two starts of a rate, in whole microseconds as Postgres has them, and how many
// starts may come together: those of a tenth of a second, at least one.
func StartPace(perSecond int) (apart time.Duration, together int) {
	return (time.Second / time.Duration(perSecond)).Truncate(time.Microsecond), max(1, perSecond/10)
}

// starts is how many of the rate are left now.
func (l *Limit) starts(now time.Time) int {
	apart, together := StartPace(l.PerSecond)
	if !l.StartsAt.After(now) {
		return together
	}
	used := (l.StartsAt.Sub(now) + apart - 1) / apart
	return max(0, together-int(used))
}

// ahead is how many runs wait for their turn before another.
func (l *Limit) ahead(t Turn) int {
	i, _ := slices.BinarySearchFunc(l.Waiting, t, Turn.Compare)
	return i
}

func (l *Limit) leave(t Turn) {
	if i, waits := slices.BinarySearchFunc(l.Waiting, t, Turn.Compare); waits {
		l.Waiting = slices.Delete(l.Waiting, i, i+1)
	}
}
