package scheduler

// Work is a kind of due work. Each kind is claimed separately, and has a share of a queue's worker slots.
type Work int8

// The kinds of work, in the order in which they are claimed.
const (
	WorkDue     Work = iota // slots that are due now
	WorkReady               // runs that wait in ready: retries, runs by hand, runs given back, notices
	WorkLate                // slots that have been due for longer than OlderThan
	WorkOrdered             // runs ordered in bulk: backfills and replays
	works
)

// shares says how the kinds of work share a queue's worker slots, in 64ths. A kind with due work gets its share
// before any other gets more than its own. Beyond that each kind may use whatever is free, except the reserves of the
// others. A reserve is kept free even while its kind has nothing to do. So the first run of a kind finds a slot,
// however long the requests of the other kinds take.
var shares = [works]struct{ share, reserve int }{
	WorkDue:     {24, 8},
	WorkReady:   {16, 1},
	WorkLate:    {16, 1},
	WorkOrdered: {8, 1},
}

// reserve is how many of a queue's worker slots are kept free for a kind of work: at least one. In a queue of fewer
// than eight slots only WorkDue has a reserve, and in a queue of one slot no kind has.
func (w Work) reserve(size int) int {
	if size < 2 || size < 8 && w != WorkDue {
		return 0
	}
	return max(1, size*shares[w].reserve/64)
}

// share is how many of a queue's worker slots the kind gets before others get more than theirs.
func (w Work) share(size int) int { return max(w.reserve(size), size*shares[w].share/64) }

// room is how many more runs of a kind of work a queue can take.
func (q *queueSlots) room(w Work) int {
	free := q.size
	for _, n := range q.inFlight {
		free -= n
	}
	own, more := free, free // within its share, and beyond
	for other := range works {
		if other == w {
			continue
		}
		reserve := other.reserve(q.size)
		own -= max(0, reserve-q.inFlight[other])
		if q.wanted[other] {
			reserve = other.share(q.size)
		}
		more -= max(0, reserve-q.inFlight[other])
	}
	return max(0, more, min(own, w.share(q.size)-q.inFlight[w]))
}

// starved reports whether a kind of work waits in a queue and has no slot there, as in a queue too small for reserves.
func (q *queueSlots) starved(w Work) bool { return q.wanted[w] && q.inFlight[w] == 0 }

// lanes returns the lanes in which a queue's runs of this kind wait in ready.
func (w Work) lanes(queue int16) []int16 {
	if w == WorkOrdered {
		return []int16{OrderLane(queue)}
	}
	return []int16{PriorityHigh.Lane(queue), PriorityNormal.Lane(queue), PriorityLow.Lane(queue)}
}

// OrderLane returns the number under which a queue's ordered runs wait, whatever their priority.
func OrderLane(queue int16) int16 { return queue*4 + 3 }

// Ordered reports whether runs of the trigger are ordered in bulk.
func (t Trigger) Ordered() bool { return t == TriggerBackfill || t == TriggerReplay }

// work is the kind of work that a run was claimed as. Runs that waited for their host are claimed together, whatever
// their kind.
func (a Assignment) work() Work {
	if a.Held != nil && a.Held.Fetched && a.Trigger.Ordered() {
		return WorkOrdered
	}
	return a.Lease.Work
}
