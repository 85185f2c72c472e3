package store_test

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// The model of dated runs.

// modelKey is a key of a job's dated runs.
type modelKey struct{ job, key int }

// modelGuard is the number of a dated run that has left. It guards its key for a while.
type modelGuard struct{ seq, left int }

// modelDated is a run that a caller wants at an instant, before it is a run.
type modelDated struct {
	modelKey
	id           uuid.UUID
	due, created int
	latest, seq  int // 0: none
}

// dates writes, moves or removes a dated run. Of two with a number the higher one stays.
func (e modelEvent) dates(m *model) error {
	key := modelKey{e.job, e.key}
	at := slices.IndexFunc(m.dated, func(d modelDated) bool { return d.modelKey == key })
	switch {
	case m.jobs[e.job].deleted, at < 0 && e.do != "date":
		return errBadState
	case e.do == "undate":
		m.leave(m.dated[at])
		return nil
	case e.with == "replace" && e.seq > 0 && e.seq <= m.guard(key):
	case at >= 0 && (e.with == "keep" || e.seq > 0 && e.seq <= m.dated[at].seq):
	default:
		if at < 0 {
			at, m.dated = len(m.dated), append(m.dated, modelDated{modelKey: key, created: m.now})
		}
		d := &m.dated[at]
		if d.id, d.due, d.seq = e.run, m.now+e.hours, cmp.Or(e.seq, d.seq); e.latest > 0 && d.latest == 0 {
			d.latest = d.created + e.latest
		}
		if d.latest > 0 { // replacements may put it off until then
			d.due = min(d.due, d.latest)
		}
	}
	return nil
}

// leave removes a dated run. Its number guards the key from now on, unless a higher one does.
func (m *model) leave(d modelDated) {
	m.dated = slices.DeleteFunc(m.dated, func(o modelDated) bool { return o.id == d.id })
	if d.seq > m.guard(d.modelKey) {
		m.guards[d.modelKey] = modelGuard{d.seq, m.now}
	}
}

// guard is the number that a replacement of a key needs to exceed; 0: none.
func (m *model) guard(key modelKey) int {
	if g := m.guards[key]; m.now < g.left+modelGuards {
		return g.seq
	}
	return 0
}

// arrive makes runs of the dated ones whose time has come. One that is too late for its job is skipped.
func (m *model) arrive() (come map[uuid.UUID]bool) {
	come = map[uuid.UUID]bool{}
	for _, d := range slices.Clone(m.dated) {
		if j := &m.jobs[d.job]; d.due > m.now || j.paused || m.frozen != "" {
			continue
		}
		m.leave(d)
		r := m.enter(d.id, d.job, domain.TriggerManual)
		r.due, r.ready, r.dated = d.due, d.due, true
		if come[d.id] = r.tolerance == 0 || m.now < d.due+r.tolerance; !come[d.id] {
			r.skip(domain.ReasonMissed)
		}
	}
	return come
}
