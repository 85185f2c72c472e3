package cron

import "time"

// Memo remembers the answers of [Expression.Next], so that a thousand jobs due at midnight share one computation. It
// is meant to live as long as one batch, and is not safe for concurrent use. The zero Memo is ready; a nil one
// remembers nothing.
type Memo struct {
	answers map[question]answer
}

type question struct {
	text  string
	zone  *time.Location
	after int64
}

type answer struct {
	slot Slot
	ok   bool
}

// Next is [Expression.Next], computed once per expression, zone and second.
func (m *Memo) Next(e *Expression, after time.Time, zone *time.Location) (Slot, bool) {
	if m == nil {
		return e.Next(after, zone)
	}
	q := question{text: e.text, zone: zone, after: after.Unix()}
	a, ok := m.answers[q]
	if !ok {
		if m.answers == nil {
			m.answers = make(map[question]answer)
		}
		a.slot, a.ok = e.Next(after, zone)
		m.answers[q] = a
	}
	return a.slot, a.ok
}
