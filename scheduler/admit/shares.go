package admit

import "punctual/scheduler/domain"

// shares says how the kinds of work share a queue's worker slots. Shares and reserves are in 64ths of the slots.
//
// Share: a kind that has due work gets its share before any other kind gets more than its own. Beyond its share, a
// kind may use every slot that is free, as the rest of the rule permits.
//
// Reserve: a kind leaves the reserves of the more urgent kinds free, even while these have nothing to do. So the
// requests of a less urgent kind, however long they take, do not make a more urgent kind wait. No kind waits for the
// sake of a less urgent one that has nothing to do: it may use that one's reserve, too. In particular, slots that are
// due wait for no reserve. Late slots are the same work, older. A reserve that only they could use would be given to a
// slot only once it is late.
//
// First runs: the first runs of a kind, as many as its reserve, start even when no slot is free. The queue then has
// more runs in flight than slots, at most by the reserves of WorkReady and WorkOrdered. Late slots and slots that are
// due have their first runs in common, because a slot must gain nothing by being late. So slots that are due may use
// both reserves, and late ones have what these leave of theirs.
//
// Hence, once a tick has claimed: where slots that are due wait, no worker slot is free. Where late slots wait, only
// slots that are due may take those that are free. Where runs in ready wait, only slots that are due or late may. As
// many runs of each kind as its reserve are in flight, or none waits. Runs of slots that are due, beyond their own
// reserve, count as late ones in this.
var shares = [domain.WorkKinds]struct {
	share, reserve int
	urgency        int // 0 is the most urgent kind
}{
	domain.WorkDue:     {24, 8, 0},
	domain.WorkLate:    {16, 1, 1},
	domain.WorkReady:   {16, 1, 2},
	domain.WorkOrdered: {8, 1, 3},
}

// reserve is the reserve of a kind of work in worker slots: at least one. In a queue of fewer than eight slots only
// WorkDue has a reserve, and in a queue of one slot no kind has.
func reserve(w domain.Work, size int) int {
	if size < 2 || size < 8 && w != domain.WorkDue {
		return 0
	}
	return max(1, size*shares[w].reserve/64)
}

// shareOf is how many of a queue's worker slots the kind gets before others get more than theirs.
func shareOf(w domain.Work, size int) int { return max(reserve(w, size), size*shares[w].share/64) }

// room is how many more runs of a kind of work a queue can take.
func (q *queueSlots) room(w domain.Work) int { return max(q.first(w), q.within(w), q.beyond(w)) }

// first is how many more runs of a kind start even when no slot is free.
func (q *queueSlots) first(w domain.Work) int {
	switch w {
	case domain.WorkDue:
		return q.unused(w) + q.first(domain.WorkLate)
	case domain.WorkLate:
		return max(0, q.unused(w)-max(0, q.taken(domain.WorkDue)-reserve(domain.WorkDue, q.size)))
	}
	return q.unused(w)
}

// within is how many more runs of a kind free slots can take within its share.
func (q *queueSlots) within(w domain.Work) int {
	free := q.free()
	for other := range domain.WorkKinds {
		free -= q.keptFrom(w, other)
	}
	return max(0, min(free, shareOf(w, q.size)-q.taken(w)))
}

// beyond is how many more runs of a kind free slots can take, whatever its share. What another kind wants and can take
// within its share is left to it.
func (q *queueSlots) beyond(w domain.Work) int {
	free := q.free()
	for other := range domain.WorkKinds {
		kept := q.keptFrom(w, other)
		if q.wanted[other] && other != w {
			kept = max(kept, q.within(other))
		}
		free -= kept
	}
	return free
}

// keptFrom is how many slots a kind of work leaves free for another one, in case that one has something to do.
func (q *queueSlots) keptFrom(w, other domain.Work) int {
	if shares[other].urgency >= shares[w].urgency {
		return 0
	}
	return q.unused(other)
}

// unused is how much of a kind's reserve no run of it occupies.
func (q *queueSlots) unused(w domain.Work) int { return max(0, reserve(w, q.size)-q.taken(w)) }

// taken is how many slots the runs of a kind occupy, or may need when the claims under way have ended.
func (q *queueSlots) taken(w domain.Work) int { return q.inFlight[w] + q.promised[w] }

// free is how many slots no run has taken: less than none, if first runs have started nonetheless.
func (q *queueSlots) free() int {
	free := q.size
	for of := range domain.WorkKinds {
		free -= q.taken(of)
	}
	return free
}

// starved reports whether a kind of work waits in a queue and has no slot there, as in a queue too small for reserves.
func (q *queueSlots) starved(w domain.Work) bool { return q.wanted[w] && q.inFlight[w] == 0 }
