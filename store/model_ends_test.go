package store_test

import (
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// The model of how attempts and runs end.

// answers is the outcome of an attempt, as its replica writes it.
func (e modelEvent) answers(m *model) error {
	r := m.run(e.run)
	if j := &m.jobs[r.job]; j.active == r.id && !r.gated { // its replica knows of no gate
		j.active = uuid.Nil
		defer func() { j.active = r.id }()
	}
	accepts := e.with == "202" && r.async || e.with == "begun"
	reason, failed := modelFailures[e.with]
	switch current := r.claims == e.claim && r.status == domain.StatusRunning && !r.accepted; {
	case accepts && current:
		r.accepted, r.inReady, r.ready, r.began = true, true, m.now+r.silence(), r.isWorkflow()
	case accepts, !current && r.told == e.claim: // nobody is told that it came too late
	case !current:
		return errSuperseded
	case failed:
		m.fail(r, reason, map[string]int{"503": modelAfter}[e.with])
	case e.with == "interrupted" && r.once:
		m.lose(r, domain.ReasonLost)
	default:
		m.end(r, modelEnds[e.with], 0)
	}
	return nil
}

// calls is a call of the target of an attempt. Of an attempt that is over, only the call that ended it may be repeated.
func (e modelEvent) calls(m *model) error {
	r := m.run(e.run)
	if !r.async { // the token of a step is for results only
		return errToken
	}
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

// tells is the end of an attempt that its target has committed to the database.
func (e modelEvent) tells(m *model) error {
	r := m.run(e.run)
	if r.claims != e.claim || r.status != domain.StatusRunning || r.asked() {
		return errSuperseded
	}
	if e.do == "tell success" {
		m.end(r, modelEnds["200"], 0)
	} else {
		m.fail(r, domain.ReasonFailed, 0)
		r.records[len(r.records)-1].reported = true
	}
	r.told = e.claim
	return nil
}

// listens ends the attempts whose targets have passed their deadlines.
func (e modelEvent) listens(m *model) error {
	if m.frozen != "" {
		return nil
	}
	for _, r := range slices.Clone(m.runs) { // as their steps stand before any of them ends here
		if r.isWorkflow() && r.accepted && r.ready <= m.now {
			m.endWorkflow(r)
		}
	}
	for _, r := range slices.Clone(m.runs) {
		switch {
		case !r.accepted || r.ready > m.now || r.isWorkflow():
		case r.approves() && m.now < r.started+modelExpiry: // it was cancelled before it waited
			m.end(r, modelEnds["cancelled"], 0)
		case r.approves():
			m.end(r, modelEnd{domain.StatusDead, domain.ReasonApprovalExpired, domain.AttemptTimedOut}, 0)
		case m.now >= r.started+modelDuration:
			m.fail(r, domain.ReasonTimeout, 0)
		default:
			m.lose(r, domain.ReasonSilent)
		}
	}
	return nil
}

// fail lets another attempt follow, unless this was the last. after is the Retry-After; 0: none.
func (m *model) fail(r *modelRun, reason domain.Reason, after int) {
	outcome, sent := domain.AttemptFailed, reason != domain.ReasonConnect
	if reason == domain.ReasonTimeout {
		outcome = domain.AttemptTimedOut
	}
	switch {
	case r.attempt >= r.maxAttempts, sent && r.once, r.isWorkflow(),
		reason == domain.ReasonTimeout && (r.policy != jobspec.PolicyAllow || r.bounded):
		m.end(r, modelEnd{domain.StatusDead, reason, outcome}, 0)
	case m.expired(r, after):
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonExpired, outcome}, 0)
	default:
		m.end(r, modelEnd{domain.StatusRetrying, reason, outcome}, max(after, modelRetry))
	}
}

// lose ends an attempt of which nobody will hear. The third in a row is the last.
func (m *model) lose(r *modelRun, reason domain.Reason) {
	if r.sendsNothing() {
		m.end(r, modelEnds["given back"], 0)
		return
	}
	lost, row := modelEnd{domain.StatusRetrying, reason, domain.AttemptLost}, 1
	for n := len(r.records); n > 0 && r.records[n-1].modelEnd == lost; n-- {
		row++
	}
	if row >= 3 || r.attempt >= r.maxAttempts || r.once {
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
	case !e.status.Final() && m.jobs[r.job].deleted:
		e.status, e.reason = domain.StatusCancelled, domain.ReasonJobDeleted
	}
	r.status, r.reason, r.accepted, r.inReady, r.ready, r.told = e.status, e.reason, false, !e.status.Final(), m.now+in, 0
	if r.status == domain.StatusDead && r.step < 0 {
		r.letter = "open"
	}
	r.finished, r.finishedAs = m.now, m.events
	if j := &m.jobs[r.job]; r.status.Final() && j.active == r.id {
		j.active = uuid.Nil
		m.release(r.job, r.reason == domain.ReasonReplaced && j.waiting != uuid.Nil)
	}
	m.ended(r)
}

// cancels is a person's cancel of a run.
func (e modelEvent) cancels(m *model) error {
	r := m.run(e.run)
	if r.status.Final() && r.status != domain.StatusCancelled {
		return errBadState
	}
	m.cancel(r.job, domain.ReasonCancelled, e.run)
	return nil
}

// cancel ends the runs that wait, and asks for the end of those that run.
func (m *model) cancel(job int, reason domain.Reason, ids ...uuid.UUID) {
	j, over, freed := &m.jobs[job], []*modelRun(nil), false
	for _, id := range ids {
		r := m.run(id)
		if r.status.Final() {
			freed = freed || r.status == domain.StatusCancelled
			continue
		}
		waits := r.approves() && r.accepted
		if r.reason = reason; r.status == domain.StatusRunning && !waits {
			if reason == domain.ReasonTimeout {
				r.reason = domain.ReasonCancelled // until it has ended
			}
			continue
		}
		if waits {
			r.records = append(slices.Clip(r.records), modelRecord{
				modelEnd: modelEnd{domain.StatusCancelled, reason, domain.AttemptCancelled}, claim: r.claims, number: r.attempt,
			})
		}
		r.stop(domain.StatusCancelled, reason)
		r.accepted, r.finished, r.finishedAs = false, m.now, m.events
		over = append(over, r)
		for _, place := range []*uuid.UUID{&j.active, &j.waiting} {
			if *place == id {
				*place = uuid.Nil
			}
		}
	}
	if (freed || len(over) > 0) && j.active == uuid.Nil && len(j.earlier) == 0 {
		m.release(job, false)
	}
	for _, r := range over {
		m.ended(r)
	}
}
