package scheduler

import "punctual/scheduler/domain"

// shares says how the kinds of work share a queue's worker slots, in 64ths. A kind with due work gets its share
// before any other gets more than its own. Beyond that each kind may use whatever is free, except the reserves of the
// others. A reserve is kept free even while its kind has nothing to do. So the first run of a kind finds a slot,
// however long the requests of the other kinds take.
var shares = [domain.WorkKinds]struct{ share, reserve int }{
	domain.WorkDue:     {24, 8},
	domain.WorkReady:   {16, 1},
	domain.WorkLate:    {16, 1},
	domain.WorkOrdered: {8, 1},
}

// reserve is how many of a queue's worker slots are kept free for a kind of work: at least one. In a queue of fewer
// than eight slots only WorkDue has a reserve, and in a queue of one slot no kind has.
func reserve(w domain.Work, size int) int {
	if size < 2 || size < 8 && w != domain.WorkDue {
		return 0
	}
	return max(1, size*shares[w].reserve/64)
}

// shareOf is how many of a queue's worker slots the kind gets before others get more than theirs.
func shareOf(w domain.Work, size int) int { return max(reserve(w, size), size*shares[w].share/64) }

// room is how many more runs of a kind of work a queue can take.
func (q *queueSlots) room(w domain.Work) int {
	free := q.size
	for _, n := range q.inFlight {
		free -= n
	}
	own, more := free, free // within its share, and beyond
	for other := range domain.WorkKinds {
		if other == w {
			continue
		}
		kept := reserve(other, q.size)
		own -= max(0, kept-q.inFlight[other])
		if q.wanted[other] {
			kept = shareOf(other, q.size)
		}
		more -= max(0, kept-q.inFlight[other])
	}
	return max(0, more, min(own, shareOf(w, q.size)-q.inFlight[w]))
}

// starved reports whether a kind of work waits in a queue and has no slot there, as in a queue too small for reserves.
func (q *queueSlots) starved(w domain.Work) bool { return q.wanted[w] && q.inFlight[w] == 0 }

// workOf is the kind of work that a run was claimed as. Runs that waited for their host are claimed together, whatever
// their kind.
func workOf(a domain.Assignment) domain.Work {
	if a.Held != nil && a.Held.Fetched && a.Trigger.Ordered() {
		return domain.WorkOrdered
	}
	return a.Lease.Work
}
