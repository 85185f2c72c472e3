package domain

// Work is a kind of due work. Each kind is claimed separately, and has a share of a queue's worker slots.
type Work int8

// The kinds of work, in the order in which they are claimed.
const (
	WorkDue     Work = iota // slots that are due now
	WorkReady               // runs that wait in ready: retries, runs by hand, runs given back, notices
	WorkLate                // slots that have been due for longer than OlderThan
	WorkOrdered             // runs ordered in bulk: backfills and replays
	WorkKinds               // how many kinds there are
)

// Lanes returns the lanes in which a queue's runs of this kind wait in ready.
func (w Work) Lanes(queue int16) []int16 {
	if w == WorkOrdered {
		return []int16{OrderLane(queue)}
	}
	return []int16{PriorityHigh.Lane(queue), PriorityNormal.Lane(queue), PriorityLow.Lane(queue)}
}

// OrderLane returns the number under which a queue's ordered runs wait, whatever their priority.
func OrderLane(queue int16) int16 { return queue*4 + 3 }

// Ordered reports whether runs of the trigger are ordered in bulk.
func (t Trigger) Ordered() bool { return t == TriggerBackfill || t == TriggerReplay }
