package store_test

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// The model of what waits for what: gates, lines, limits, and the claims that let runs start.

// modelGate is the gate of a job.
type modelGate struct {
	active, waiting uuid.UUID
	earlier         []uuid.UUID // the runs that were in flight when the job got its gate, until they end
	gated           bool        // whether all runs pass it; else those of missed slots
	replaced        []uuid.UUID // as a claim has it: the runs that make way
}

func (g *modelGate) free() bool { return g.active == uuid.Nil && len(g.earlier) == 0 }
func (g *modelGate) has(run uuid.UUID) bool {
	return g.active == run || slices.Contains(g.earlier, run)
}

// take gives the gate to a run, unless another one has it.
func (g *modelGate) take(run uuid.UUID) {
	if g.free() {
		g.active = run
	}
	if g.active == run && g.waiting == run {
		g.waiting = uuid.Nil
	}
}

// overlap decides about one more run.
func (g modelGate) overlap(policy jobspec.ConcurrencyPolicy) (blocker uuid.UUID, replaces []uuid.UUID) {
	holders := g.earlier
	if !slices.Contains(holders, g.active) {
		holders = append([]uuid.UUID{g.active}, holders...)
	}
	is := func(id uuid.UUID) bool { return id == uuid.Nil }
	switch all := slices.DeleteFunc(append(slices.Clone(holders), g.waiting), is); {
	case len(all) == 0:
	case policy == jobspec.PolicyForbid:
		blocker = all[0]
	case policy == jobspec.PolicyWait:
		blocker = g.waiting
	case policy == jobspec.PolicyReplace:
		replaces = all
	}
	return blocker, replaces
}

// facing returns a job's gate as another run of the job meets it: without a run that has expired while it waited there.
func (m *model) facing(job int) (g modelGate, expired uuid.UUID) {
	if g = m.jobs[job].modelGate; g.waiting != uuid.Nil && m.expired(m.run(g.waiting), 0) {
		g.waiting, expired = uuid.Nil, g.waiting
	}
	return g, expired
}

// faces returns what is in the way of a run of a job that no claim has met. Those about which no claim has decided come
// first, and under forbid all that wait.
func (m *model) faces(job int) modelGate {
	g, expired := m.facing(job)
	for _, r := range m.runs {
		inTheWay := r.job == job && r.inReady && !r.accepted && r.step < 0 && (m.jobs[job].policy == jobspec.PolicyForbid ||
			r.claims == 0 && !r.ordered() && r.trigger != domain.TriggerCatchup)
		switch {
		case !inTheWay || r.id == expired || r.id == g.waiting || g.has(r.id):
		case g.free():
			g.active = r.id
		case g.waiting == uuid.Nil:
			g.waiting = r.id
		}
	}
	return g
}

// expire ends a run that has expired while it waited at its gate.
func (m *model) expire(id uuid.UUID) {
	if r := m.run(id); r != nil && r.status == domain.StatusPending {
		r.skip(domain.ReasonExpired)
		m.jobs[r.job].waiting = uuid.Nil
	}
}

// passesGate reports whether a run passes the gate of its job.
func (m *model) passesGate(r *modelRun) bool {
	j := &m.jobs[r.job]
	return r.step < 0 && (j.gated || r.trigger == domain.TriggerCatchup || j.active == r.id)
}

// undecided reports whether a run has not come to the gate of its job. Ordered work waits there until the gate is free,
// as does a dated run that replaces nothing.
func (m *model) undecided(r *modelRun) bool {
	j := &m.jobs[r.job]
	return j.gated && r.policy != jobspec.PolicyAllow && !r.queues() && r.step < 0 && r.claims == 0 && !r.ordered() &&
		r.id != j.active && r.id != j.waiting && (!r.dated || r.policy == jobspec.PolicyReplace)
}

// pending is how many runs of a job wait, without the one that has its gate.
func (m *model) pending(job int) int {
	return len(m.where(func(r *modelRun) bool {
		return r.job == job && r.step < 0 && r.inReady && r.id != m.jobs[job].active
	}))
}

// fires is a slot that becomes due and is claimed.
func (e modelEvent) fires(m *model) error {
	j := &m.jobs[e.job]
	if m.frozen != "" || j.paused || j.deleted || j.onEvent {
		return nil
	}
	free := j.free()
	facing, expired := m.facing(e.job)
	blocker, replaces := facing.overlap(j.policy)
	m.expire(expired)
	switch {
	case blocker != uuid.Nil:
		m.enter(e.of, e.job, domain.TriggerSchedule).overlaps(blocker)
		return nil
	case j.queues() && m.pending(e.job) >= j.most:
		m.enter(e.of, e.job, domain.TriggerSchedule).skip(domain.ReasonLimit)
		return nil
	}
	m.cancel(e.job, domain.ReasonReplaced, replaces...)
	trigger := map[bool]domain.Trigger{false: domain.TriggerSchedule, true: domain.TriggerCatchup}[j.missed]
	switch r := m.enter(e.run, e.job, trigger); {
	case j.queues() || !j.gated && m.limited(r) || j.missed:
	case !free || m.limited(r):
		j.waiting = r.id
	default:
		if m.start(r, e.replica); r.gated {
			j.take(r.id)
		}
	}
	return nil
}

// modelLine is how the runs of a job that go in order stand when a claim begins: of a queue all, else those of missed
// slots.
type modelLine struct {
	first  uuid.UUID // the oldest that waits
	length int       // how many wait at the gate
}

// lines are the lines of all jobs, without the runs that come to them by this claim.
func (m *model) lines(come map[uuid.UUID]bool) []modelLine {
	lines := make([]modelLine, len(m.jobs))
	for _, r := range m.runs {
		inLine := !r.missed || r.trigger == domain.TriggerCatchup && r.claims == 0
		if l := &lines[r.job]; inLine && r.step < 0 && r.inReady && !r.accepted && !come[r.id] {
			if l.first == uuid.Nil {
				l.first = r.id
			}
			if r.parked {
				l.length++
			}
		}
	}
	return lines
}

// behind reports whether an older run comes before one that goes in order.
func (l modelLine) behind(r *modelRun) bool {
	return (r.queues() || r.trigger == domain.TriggerCatchup) && l.first != uuid.Nil && pg.CompareIDs(l.first, r.id) < 0
}

// claims is a claim of what is ready, by a replica. Of runs that replace each other the newest comes first. A gate
// counts as held as long as the claim lasts, although the run that held it may be ended by the claim. So does a limit.
// Those that are replaced end together, and gates are taken last: so the next one at the gate may be set due.
func (e modelEvent) claims(m *model) error {
	var come, replace, take []uuid.UUID
	var dated map[uuid.UUID]bool
	if e.do == "claim" {
		dated = m.arrive()
	}
	undecided, gates, expired := map[uuid.UUID]bool{}, make([]modelGate, len(m.jobs)), make([]uuid.UUID, len(m.jobs))
	lines, holders := m.lines(dated), m.holders()
	for i := range gates {
		gates[i], expired[i] = m.facing(i)
	}
	for _, r := range m.runs {
		if m.frozen != "" || !r.inReady || r.accepted || r.ready > m.now || (e.do == "claim ordered") != r.ordered() {
			continue
		}
		if undecided[r.id] = m.undecided(r); undecided[r.id] && r.policy == jobspec.PolicyReplace {
			replace = slices.Insert(replace, 0, r.id)
		} else {
			come = append(come, r.id)
		}
	}
	for n, id := range append(append(replace, uuid.Nil), come...) {
		if n == len(replace) { // all that are replaced are known
			for job, g := range gates {
				m.cancel(job, domain.ReasonReplaced, g.replaced...)
			}
			continue
		}
		r := m.run(id)
		switch g, l := &gates[r.job], &lines[r.job]; {
		case !r.inReady || slices.Contains(g.replaced, id) || undecided[id] && !m.comes(r, g, expired[r.job]):
		case !undecided[id] && m.passesGate(r) && !g.has(id) && (!g.free() || l.behind(r)):
			m.park(r, l)
		case m.limited(r) && m.full(r, holders):
			if r.atLimit, r.parked, r.ready = true, false, m.now+modelParked; undecided[id] {
				g.waiting, m.jobs[r.job].waiting = id, id
			}
		default:
			if r.bounded = m.limited(r) && m.limit.most > 0; m.limited(r) && !r.holds {
				if r.holds = true; m.limit.rated && r.claims == 0 {
					m.limit.next = m.now + 1
				}
				holders++
			}
			if m.start(r, e.replica); r.gated {
				g.take(id)
				take = append(take, id)
			}
		}
	}
	for _, id := range take {
		m.jobs[m.run(id).job].take(id)
	}
	return nil
}

// comes is a run that comes to the gate of its job. It reports whether the run may start.
func (m *model) comes(r *modelRun, g *modelGate, expired uuid.UUID) bool {
	blocker, replaces := g.overlap(r.policy)
	if slices.ContainsFunc(replaces, func(of uuid.UUID) bool { return pg.CompareIDs(of, r.id) > 0 }) {
		g.replaced = append(g.replaced, r.id)
		return false
	}
	m.expire(expired)
	if blocker != uuid.Nil {
		r.overlaps(blocker)
		return false
	}
	g.replaced = append(g.replaced, replaces...)
	if g.free() {
		g.waiting = uuid.Nil
		return true
	}
	g.waiting, m.jobs[r.job].waiting = r.id, r.id
	if len(replaces) == 0 { // else the gate may be free at once
		m.park(r, nil)
	}
	return false
}

// park leaves a run at its gate. In a queue only so many may wait there.
func (m *model) park(r *modelRun, l *modelLine) {
	if r.queues() && !r.parked {
		if l.length >= r.most && r.claims == 0 && !r.ordered() {
			r.skip(domain.ReasonLimit)
			return
		}
		l.length++
	}
	r.parked, r.atLimit, r.ready = true, false, m.now+modelParked
}

// start begins an attempt.
func (m *model) start(r *modelRun, replica int) {
	r.status, r.replica, r.started, r.gated = domain.StatusRunning, replica, m.now, m.passesGate(r)
	r.inReady, r.parked, r.atLimit = false, false, false
	r.attempt++
	r.claims++
}

// release lets the oldest run that is parked at a gate come to it, or the one that waits there.
func (m *model) release(job int, waiting bool) {
	if r := first(m.where(func(r *modelRun) bool {
		return r.job == job && (waiting && r.id == m.jobs[job].waiting || !waiting && r.parked)
	})); r != nil {
		r.parked, r.ready = false, m.now
	}
}

// freeGates takes gates from the earlier runs that have ended. The gate is then that of the newest one that is left.
func (m *model) freeGates() {
	for i := range m.jobs {
		j := &m.jobs[i]
		left := slices.DeleteFunc(slices.Clone(j.earlier), func(id uuid.UUID) bool { return m.run(id).status.Final() })
		if len(left) == len(j.earlier) {
			continue
		}
		if j.earlier = left; j.active != uuid.Nil && m.run(j.active).status.Final() {
			j.active = append(left, uuid.Nil)[0]
		}
		if j.free() {
			m.release(i, false)
		}
	}
}

// modelBound is the limit that some jobs share.
type modelBound struct {
	most  int // max_running; 0: any
	rated bool
	next  int // if it is rated, the hour at which the next run may start
}

// limits sets the limit.
func (e modelEvent) limits(m *model) error {
	if most, rated := max(e.hours, 0), e.hours < 0; most != m.limit.most || rated != m.limit.rated {
		m.limit = modelBound{most: most, rated: rated}
	}
	return nil
}

// full reports whether a run waits at the limit.
func (m *model) full(r *modelRun, holders int) bool {
	switch {
	case r.holds:
		return false
	case m.limit.rated:
		return r.claims == 0 && (m.limit.next > m.now || m.ahead(r) > 0)
	}
	return m.limit.most > 0 && holders+m.ahead(r) >= m.limit.most
}

// limited reports whether a run holds the limit of its job while it works. Of a workflow its steps do.
func (m *model) limited(r *modelRun) bool { return r.limited && !r.sendsNothing() }

// holders is how many runs hold the limit.
func (m *model) holders() int {
	return len(m.where(func(r *modelRun) bool { return r.holds && !r.status.Final() }))
}

// ahead is how many runs wait at the limit before another one. One that was due and that nobody claimed is not waited
// for.
func (m *model) ahead(of *modelRun) int {
	return len(m.where(func(r *modelRun) bool {
		return r.atLimit && r.ready >= m.now && turn(r, of) < 0
	}))
}

// turn compares two runs that wait at the limit: ordered work comes last.
func turn(a, b *modelRun) int {
	last := map[bool]int{true: 1}
	return cmp.Or(last[a.ordered()]-last[b.ordered()], pg.CompareIDs(a.id, b.id))
}

// makeRoom sets due what the limit has room for. Of a rate that is one run at a time, and else all once it has room.
func (m *model) makeRoom() {
	let, rated := false, m.limit.rated && m.limit.next <= m.now
	waiting := m.where(func(r *modelRun) bool { let = let || r.atLimit && r.ready == m.now; return r.atLimit })
	slices.SortFunc(waiting, turn)
	for _, r := range waiting {
		switch {
		case r.ready < modelParked, rated && let: // it was let in before
		case !m.limit.rated && m.limit.most > 0 && m.holders()+m.ahead(r) >= m.limit.most:
		default:
			let, r.ready = true, max(m.now, m.limit.next)
		}
	}
}
