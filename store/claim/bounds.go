package claim

import (
	"sync"
	"time"

	"punctual/scheduler/admit"
)

// A run that leaves ready or dated leaves entries in their indexes, at the end where what is due begins. Vacuum cannot
// remove them while a snapshot is held that is older than their end, such as that of an application's open transaction
// or of pg_dump. So looks and claims do not begin at the first entry, but where the last look found that nothing was
// left before.
//
// What was not yet committed at that look may lie before it: it was due boundBehind before its commit, or longer. So
// every so often a look begins at the first entry again. If no entries are dead, it costs nothing, and nearly all do.
const (
	boundBehind = 5 * time.Second
	// wholeShare is how many times as long as such a look took the next ones begin at the bound, and wholeEvery the
	// longest that they do.
	wholeShare = 20
	wholeEvery = time.Minute
)

// bound is, by queue, where the looks and claims of a kind of work begin. Safe for concurrent use.
type bound struct {
	mu    sync.Mutex
	of    map[int16]time.Time
	whole time.Time // from then on a look begins at the first entry
}

// begin returns where a look at some queues begins; nil: at the first entry.
func (b *bound) begin(queues []int16, at time.Time) []*time.Time {
	b.mu.Lock()
	if !at.Before(b.whole) {
		b.of = nil
	}
	b.mu.Unlock()
	return b.get(queues)
}

// get returns where a claim of some queues begins.
func (b *bound) get(queues []int16) []*time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := make([]*time.Time, len(queues))
	for i, q := range queues {
		if at, is := b.of[q]; is {
			from[i] = &at
		}
	}
	return from
}

// learn notes what a look at some queues found: the oldest of each, if it has any, by the database's clock. The look
// began at an instant of this machine's clock.
func (b *bound) learn(queues []int16, oldest []*time.Time, now, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[int16]time.Time{}
		b.whole = time.Now().Add(min(wholeShare*time.Since(began), wholeEvery))
	}
	for i, q := range queues {
		at := now
		if i < len(oldest) && oldest[i] != nil && oldest[i].Before(now) {
			at = *oldest[i]
		}
		b.of[q] = at.Add(-boundBehind)
	}
}

// oldestOf returns when the oldest due work of each queue was due, as a look at the tenants that wait has found it.
func oldestOf(queues []int16, found []admit.Contender) []*time.Time {
	oldest := make([]*time.Time, len(queues))
	for i, q := range queues {
		for _, c := range found {
			if c.Queue == q && (oldest[i] == nil || c.Oldest.Before(*oldest[i])) {
				oldest[i] = &c.Oldest
			}
		}
	}
	return oldest
}

// firstOf returns the first of some instants; zero: there is none.
func firstOf(of []*time.Time) (first time.Time) {
	for _, at := range of {
		if at != nil && (first.IsZero() || at.Before(first)) {
			first = *at
		}
	}
	return first
}
