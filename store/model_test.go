package store_test

import (
	"errors"
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// The model of a run's life. It says what each event does to the runs of some jobs, without any code of the store or of
// scheduler/domain. Its time is in whole hours: see lived.pass.

// model is the state of jobs and their runs.
type model struct {
	now    int
	frozen string // what is frozen: "tenant", "deployment" or nothing
	jobs   []modelJob
	runs   []modelRun // by id
}

type modelJob struct {
	policy               domain.ConcurrencyPolicy
	maxAttempts, expires int // expires: expires_after, or 0
	async, once, paused  bool
	active, waiting      uuid.UUID // the gate
}

// modelRun is a run. It is ready when it may be claimed, or when its target's deadline has come.
type modelRun struct {
	id, blockedBy, replay     uuid.UUID
	trigger                   domain.Trigger
	status                    domain.Status
	reason                    domain.Reason
	job, due, ready           int
	attempt, claims           int  // attempts that count; how often it was claimed: its fence
	replica, started          int  // of the last claim
	accepted, inReady, parked bool // its target works on; parked: at its gate
	records                   []modelRecord
	letter                    string // "": none
}

// modelRecord is an attempt on record.
type modelRecord struct {
	modelEnd
	claim, number int
	reported      bool // its target said that it failed
}

// modelEnd is how an attempt and its run end. outcome is empty if nothing was sent, or of a success.
type modelEnd struct {
	status  domain.Status
	reason  domain.Reason
	outcome domain.AttemptOutcome
}

// Why an event is refused.
var errBadState, errSuperseded = errors.New("state"), errors.New("superseded")

// transition returns the state after an event, and leaves m as it is. The error says why the event is refused.
func transition(m model, e modelEvent) (after model, err error) {
	m.jobs, m.runs = slices.Clone(m.jobs), slices.Clone(m.runs)
	switch r := m.run(e.run); e.do {
	case "pass":
		m.now += e.hours
	case "freeze":
		m.frozen = e.with
	case "pause", "resume":
		m.jobs[e.job].paused = e.do == "pause"
	case "slot":
		e.fires(&m)
	case "trigger", "rerun":
		err = e.enters(&m)
	case "replay":
		dead := m.run(e.of)
		if again := m.run(dead.replay); dead.letter == "" || dead.letter != "open" &&
			(again == nil || again.status != domain.StatusCancelled) {
			return m, errBadState
		}
		dead.letter, dead.replay = "resolved", e.run
		m.enter(e.run, dead.job, domain.TriggerReplay)
	case "claim", "claim ordered":
		e.claims(&m)
	case "answer":
		err = e.answers(&m, r)
	case "beat", "complete", "report", "report final":
		err = e.calls(&m, r)
	case "listen":
		e.listens(&m)
	case "take over":
		for i := range m.runs {
			if r := &m.runs[i]; r.status == domain.StatusRunning && !r.accepted && r.replica == e.replica {
				m.lose(r, domain.ReasonLost)
			}
		}
	case "cancel":
		if r.status.Final() && r.status != domain.StatusCancelled {
			return m, errBadState
		}
		m.cancel(r.job, domain.ReasonCancelled, e.run)
	}
	return m, err
}

// run returns a run, or nil.
func (m *model) run(id uuid.UUID) *modelRun {
	if at := slices.IndexFunc(m.runs, func(r modelRun) bool { return r.id == id }); at >= 0 {
		return &m.runs[at]
	}
	return nil
}

// enter adds a run that waits.
func (m *model) enter(id uuid.UUID, job int, trigger domain.Trigger) *modelRun {
	m.runs = append(m.runs, modelRun{
		id: id, job: job, trigger: trigger, status: domain.StatusPending, due: m.now, inReady: true, ready: m.now,
	})
	slices.SortFunc(m.runs, func(a, b modelRun) int { return pg.CompareIDs(a.id, b.id) })
	return m.run(id)
}

func (j *modelJob) gated() bool { return j.policy != domain.PolicyAllow }

// take gives the free gate to a run.
func (j *modelJob) take(run uuid.UUID) {
	if j.active = run; j.waiting == run {
		j.waiting = uuid.Nil
	}
}

func (r *modelRun) asked() bool { // to be cancelled
	return r.reason == domain.ReasonCancelled || r.reason == domain.ReasonReplaced
}

// expired reports whether no attempt may start in so many hours.
func (m *model) expired(r *modelRun, in int) bool {
	after := m.jobs[r.job].expires
	return after > 0 && r.trigger != domain.TriggerReplay && m.now+in >= r.due+after
}

// facing returns a job's gate as another run of the job meets it: without a run that has expired while it waited there.
func (m *model) facing(job int) (j modelJob, expired uuid.UUID) {
	if j = m.jobs[job]; j.waiting != uuid.Nil && m.expired(m.run(j.waiting), 0) {
		j.waiting, expired = uuid.Nil, j.waiting
	}
	return j, expired
}

// overlap decides about one more run.
func (j modelJob) overlap() (blocker uuid.UUID, replaces []uuid.UUID) {
	switch {
	case j.policy == domain.PolicyForbid && j.active != uuid.Nil:
		blocker = j.active
	case j.policy == domain.PolicyForbid, j.policy == domain.PolicyWait:
		blocker = j.waiting
	case j.policy == domain.PolicyReplace:
		replaces = []uuid.UUID{j.active, j.waiting}
	}
	return blocker, slices.DeleteFunc(replaces, func(id uuid.UUID) bool { return id == uuid.Nil })
}

// expire ends a run that has expired while it waited at its gate.
func (m *model) expire(id uuid.UUID) {
	if r := m.run(id); r != nil && r.status == domain.StatusPending {
		r.status, r.reason, r.inReady, r.parked = domain.StatusSkipped, domain.ReasonExpired, false, false
		m.jobs[r.job].waiting = uuid.Nil
	}
}

// fires is a slot that becomes due and is claimed.
func (e modelEvent) fires(m *model) {
	j := &m.jobs[e.job]
	if m.frozen != "" || j.paused {
		return
	}
	wasActive := j.active != uuid.Nil
	facing, expired := m.facing(e.job)
	blocker, replaces := facing.overlap()
	m.expire(expired)
	if blocker != uuid.Nil {
		m.enter(e.of, e.job, domain.TriggerSchedule).skip(blocker)
		return
	}
	m.cancel(e.job, domain.ReasonReplaced, replaces...)
	if r := m.enter(e.run, e.job, domain.TriggerSchedule); j.gated() && wasActive {
		j.waiting = r.id
	} else {
		m.start(r, e.replica)
	}
}

func (r *modelRun) skip(blocker uuid.UUID) {
	r.status, r.reason, r.inReady, r.blockedBy = domain.StatusSkipped, domain.ReasonOverlap, false, blocker
}

// enters is a run by hand. It is refused if its claim would skip it now.
func (e modelEvent) enters(m *model) error {
	if of := m.run(e.of); of != nil && !of.status.Final() {
		return errBadState
	}
	j, expired := m.facing(e.job)
	for _, r := range m.runs {
		switch waits := r.inReady && !r.accepted && (j.policy == domain.PolicyForbid || m.undecided(&r)); {
		case r.job != e.job || !waits || r.id == expired || r.id == j.waiting || r.id == j.active:
		case j.active == uuid.Nil:
			j.active = r.id
		case j.waiting == uuid.Nil:
			j.waiting = r.id
		}
	}
	if blocker, _ := j.overlap(); blocker != uuid.Nil {
		return errors.New("active " + blocker.String())
	}
	m.enter(e.run, e.job, domain.TriggerManual)
	return nil
}

// undecided reports whether a run has not come to the gate of its job. A replay waits there until the gate is free.
func (m *model) undecided(r *modelRun) bool {
	j := &m.jobs[r.job]
	return j.gated() && r.claims == 0 && r.trigger != domain.TriggerReplay && r.id != j.active && r.id != j.waiting
}

// claims is a claim of what is ready, by a replica. Of runs that replace each other the newest comes first. A gate
// counts as held as long as the claim lasts, although the run that held it may be ended by the claim.
func (e modelEvent) claims(m *model) {
	var come, replace []uuid.UUID
	undecided, gates, expired := map[uuid.UUID]bool{}, slices.Clone(m.jobs), make([]uuid.UUID, len(m.jobs))
	for i := range gates {
		gates[i], expired[i] = m.facing(i)
	}
	for i := range m.runs {
		r := &m.runs[i]
		if m.frozen != "" || !r.inReady || r.accepted || r.ready > m.now ||
			(e.do == "claim ordered") != (r.trigger == domain.TriggerReplay) {
			continue
		}
		if undecided[r.id] = m.undecided(r); undecided[r.id] && m.jobs[r.job].policy == domain.PolicyReplace {
			replace = slices.Insert(replace, 0, r.id)
		} else {
			come = append(come, r.id)
		}
	}
	for _, id := range append(replace, come...) {
		r := m.run(id)
		switch g := &gates[r.job]; {
		case !r.inReady || undecided[id] && !m.comes(r, g, expired[r.job]):
		case g.gated() && g.active != uuid.Nil && g.active != id:
			m.park(r)
		default:
			g.take(id)
			m.start(r, e.replica)
		}
	}
}

func (m *model) park(r *modelRun) { r.parked, r.ready = true, m.now+modelParked }

// comes is a run that comes to the gate of its job. It reports whether the run may start.
func (m *model) comes(r *modelRun, g *modelJob, expired uuid.UUID) bool {
	blocker, replaces := g.overlap()
	if slices.ContainsFunc(replaces, func(of uuid.UUID) bool { return pg.CompareIDs(of, r.id) > 0 }) {
		m.cancel(r.job, domain.ReasonReplaced, r.id)
		return false
	}
	m.expire(expired)
	if blocker != uuid.Nil {
		r.skip(blocker)
		return false
	}
	m.cancel(r.job, domain.ReasonReplaced, replaces...)
	if g.active == uuid.Nil {
		g.waiting = uuid.Nil
		return true
	}
	g.waiting, m.jobs[r.job].waiting = r.id, r.id
	if len(replaces) == 0 { // else the gate may be free at once
		m.park(r)
	}
	return false
}

// start begins an attempt.
func (m *model) start(r *modelRun, replica int) {
	if j := &m.jobs[r.job]; j.gated() {
		j.take(r.id)
	}
	r.status, r.replica, r.started = domain.StatusRunning, replica, m.now
	r.inReady, r.parked = false, false
	r.attempt++
	r.claims++
}

// answers is the outcome of an attempt, as its replica writes it.
func (e modelEvent) answers(m *model, r *modelRun) error {
	accepts := e.with == "202" && m.jobs[r.job].async
	reason, failed := modelFailures[e.with]
	switch current := r.claims == e.claim && r.status == domain.StatusRunning && !r.accepted; {
	case accepts && current:
		r.accepted, r.inReady, r.ready = true, true, m.now+min(modelSilence, modelDuration)
	case accepts: // nobody is told that it came too late
	case !current:
		return errSuperseded
	case failed:
		m.fail(r, reason, map[string]int{"503": modelAfter}[e.with])
	case e.with == "interrupted" && m.jobs[r.job].once:
		m.lose(r, domain.ReasonLost)
	default:
		m.end(r, modelEnds[e.with], 0)
	}
	return nil
}

// calls is a call of the target of an attempt. Of an attempt that is over, only the call that ended it may be repeated.
func (e modelEvent) calls(m *model, r *modelRun) error {
	if r.claims != e.claim || r.status != domain.StatusRunning {
		completed := r.claims == e.claim &&
			(r.status == domain.StatusSucceeded || r.status == domain.StatusCancelled && r.asked())
		reported := slices.ContainsFunc(r.records, func(a modelRecord) bool { return a.claim == e.claim && a.reported })
		if e.do == "complete" && completed || (e.do == "report" || e.do == "report final") && reported {
			return nil
		}
		return errSuperseded
	}
	switch e.do {
	case "beat":
		if r.accepted && !r.asked() {
			r.ready = min(m.now+modelSilence, r.started+modelDuration)
		}
		return nil
	case "complete":
		m.end(r, modelEnds["200"], 0)
		return nil
	case "report":
		m.fail(r, domain.ReasonFailed, 0)
	default:
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonFailed, domain.AttemptFailed}, 0)
	}
	r.records[len(r.records)-1].reported = true
	return nil
}

// listens ends the attempts whose targets have passed their deadlines.
func (modelEvent) listens(m *model) {
	for i := range m.runs {
		r := &m.runs[i]
		switch {
		case m.frozen != "" || !r.accepted || r.ready > m.now:
		case m.now >= r.started+modelDuration:
			m.fail(r, domain.ReasonTimeout, 0)
		default:
			m.lose(r, domain.ReasonSilent)
		}
	}
}

// fail lets another attempt follow, unless this was the last. after is the Retry-After; 0: none.
func (m *model) fail(r *modelRun, reason domain.Reason, after int) {
	j, outcome, sent := &m.jobs[r.job], domain.AttemptFailed, reason != domain.ReasonConnect
	if reason == domain.ReasonTimeout {
		outcome = domain.AttemptTimedOut
	}
	switch {
	case r.attempt >= j.maxAttempts, sent && j.once, reason == domain.ReasonTimeout && j.gated():
		m.end(r, modelEnd{domain.StatusDead, reason, outcome}, 0)
	case m.expired(r, after):
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonExpired, outcome}, 0)
	default:
		m.end(r, modelEnd{domain.StatusRetrying, reason, outcome}, max(after, modelRetry))
	}
}

// lose ends an attempt of which nobody will hear. The third in a row is the last.
func (m *model) lose(r *modelRun, reason domain.Reason) {
	j, row := &m.jobs[r.job], 1
	lost := modelEnd{domain.StatusRetrying, reason, domain.AttemptLost}
	for n := len(r.records); n > 0 && r.records[n-1].modelEnd == lost; n-- {
		row++
	}
	if row >= 3 || r.attempt >= j.maxAttempts || j.once {
		lost.status = domain.StatusDead
	}
	if row >= 3 && reason == domain.ReasonLost {
		lost.reason = domain.ReasonPoison
	}
	m.end(r, lost, 0)
}

// end ends an attempt. If another one follows, it is ready in so many hours.
func (m *model) end(r *modelRun, e modelEnd, in int) {
	if e.status == domain.StatusSucceeded && r.asked() {
		e.reason, e.outcome = r.reason, domain.AttemptCancelled
	}
	if e.outcome != "" {
		r.records = append(slices.Clip(r.records), modelRecord{modelEnd: e, claim: r.claims, number: r.attempt})
	}
	if e.status == domain.StatusSkipped || e.status == domain.StatusPending || e.outcome == domain.AttemptInterrupted {
		r.attempt-- // it does not count
	}
	switch {
	case r.asked():
		e.status, e.reason = domain.StatusCancelled, r.reason
	case e.status == domain.StatusSkipped && len(r.records) > 0: // something was sent before
		e.status = domain.StatusDead
	}
	r.status, r.reason, r.accepted, r.inReady, r.ready = e.status, e.reason, false, !e.status.Final(), m.now+in
	if r.status == domain.StatusDead {
		r.letter = "open"
	}
	if j := &m.jobs[r.job]; r.status.Final() && j.active == r.id {
		j.active = uuid.Nil
		m.release(r.job, r.reason == domain.ReasonReplaced && j.waiting != uuid.Nil)
	}
}

// release lets the oldest run that is parked at a gate come to it, or the one that waits there.
func (m *model) release(job int, waiting bool) {
	for i := range m.runs {
		r := &m.runs[i]
		if r.job == job && (waiting && r.id == m.jobs[job].waiting || !waiting && r.parked) {
			r.parked, r.ready = false, m.now
			return
		}
	}
}

// cancel ends the runs that wait, and asks for the end of those that run.
func (m *model) cancel(job int, reason domain.Reason, ids ...uuid.UUID) {
	j := &m.jobs[job]
	for _, id := range ids {
		r := m.run(id)
		if r.status.Final() {
			continue
		}
		if r.reason = reason; r.status == domain.StatusRunning {
			continue
		}
		r.status, r.inReady, r.parked = domain.StatusCancelled, false, false
		for _, place := range []*uuid.UUID{&j.active, &j.waiting} {
			if *place == id {
				*place = uuid.Nil
			}
		}
	}
	if len(ids) > 0 && j.active == uuid.Nil {
		m.release(job, false)
	}
}
