package store_test

import (
	"maps"

	"punctual/scheduler/domain"
)

// The model of backfills.

// modelSlot is one of the slots of the past, from 0, under a schedule: its hour of the day.
type modelSlot struct{ hour, n int }

// modelFill is a backfill that has slots left.
type modelFill struct {
	job, next, hour   int // the next slot, and when slots were as it began
	again, oneAtATime bool
}

// fills begins a backfill.
func (e modelEvent) fills(m *model) error {
	if m.jobs[e.job].deleted {
		return errBadState
	}
	m.fill = &modelFill{job: e.job, hour: m.jobs[e.job].slots, again: e.with == "again", oneAtATime: e.hours > 0}
	return nil
}

// operates makes the next runs of the backfill. Of a job whose runs do not overlap only one at a time waits.
func (e modelEvent) operates(m *model) error {
	if m.fill == nil || m.jobs[m.fill.job].deleted {
		m.fill = nil
		return nil
	}
	f := *m.fill
	j, room := &m.jobs[f.job], modelFills
	if j.fills = maps.Clone(j.fills); j.gated || f.oneAtATime {
		room = 1
	}
	last := m.run(j.lastFill)
	for _, r := range m.runs {
		waits := r.job == f.job && r.inReady || r.id == j.active && !r.status.Final()
		if j.gated && waits || f.oneAtATime && last != nil && !last.status.Final() {
			room = 0
		}
	}
	for made := 0; room > 0 && f.next < modelFills; f.next++ {
		slot := modelSlot{f.hour, f.next}
		of := m.run(j.fills[slot])
		if of != nil && !f.again && (of.status.Final() || !f.oneAtATime) {
			continue
		}
		if made == room {
			break
		}
		if of != nil && !f.again { // the next one waits for it
			j.lastFill, room = of.id, made
			continue
		}
		r := m.enter(e.filled[slot], f.job, domain.TriggerBackfill)
		if of == nil {
			j.fills[slot] = r.id
		}
		if made++; f.oneAtATime {
			j.lastFill = r.id
		}
	}
	if m.fill = &f; f.next == modelFills {
		m.fill = nil
	}
	return nil
}
