package store_test

import (
	"slices"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// The model of workflows: their steps, approvals, and what a rerun keeps of them.

func (r *modelRun) isWorkflow() bool { return r.step < 0 && len(r.steps) > 0 }

// approves reports whether a run waits for a person in place of sending a request.
func (r *modelRun) approves() bool { return r.step >= 0 && r.steps[r.step].approval }

func (r *modelRun) sendsNothing() bool { return r.isWorkflow() || r.approves() }

// silence is how long an accepted attempt has before its deadline.
func (r *modelRun) silence() int {
	switch {
	case r.isWorkflow():
		return modelWorkflow
	case r.approves() && r.reason != "":
		return 0
	case r.approves():
		return modelExpiry
	}
	return modelSilence
}

// stepOf returns the run of a step, or nil.
func (m *model) stepOf(w *modelRun, step int) *modelRun {
	return first(m.where(func(r *modelRun) bool { return r.workflow == w.id && r.step == step }))
}

// why is why a workflow goes on no longer as it did; empty: it does.
func (m *model) why(w *modelRun) domain.Reason {
	if m.jobs[w.job].deleted && w.status == domain.StatusRunning && !w.asked() {
		return domain.ReasonJobDeleted
	}
	return w.reason
}

// state says whether no step of a workflow may start any more, or only those that clean up.
func (m *model) state(w *modelRun) (halted, late bool) {
	why := m.why(w)
	late = w.status == domain.StatusRunning && why == domain.ReasonTimeout
	return w.status != domain.StatusRunning || why != "" && !late, late
}

// advance lets a workflow go on: steps start, are skipped, or are cancelled. When all have ended, it is due.
func (m *model) advance(w *modelRun) {
	if w = m.run(w.id); !w.began {
		return
	}
	steps := w.steps
	halted, late := m.state(w)
	for i, s := range steps {
		r := m.stepOf(w, i)
		stops := (halted || late && !s.cleansUp) && (m.why(w) != domain.ReasonJobDeleted || s.approval)
		if stops && r != nil && !r.status.Final() && !r.asked() && r.reason != domain.ReasonJobDeleted {
			reason := m.why(w)
			if reason != domain.ReasonTimeout && reason != domain.ReasonJobDeleted {
				reason = domain.ReasonCancelled
			}
			m.cancel(w.job, reason, r.id)
		}
	}
	for i, s := range steps { // each depends on earlier ones only
		ready, failed := m.stepOf(w, i) == nil && !halted, false
		for _, on := range s.on {
			before := m.stepOf(w, on)
			ready = ready && before != nil && before.status.Final()
			failed = failed || ready && before.status != domain.StatusSucceeded
		}
		if !ready {
			continue
		}
		r := m.enterStep(m.made[modelCause{w.id, -1 - i}], w, i)
		switch {
		case failed && !s.cleansUp:
			r.skip(domain.ReasonUpstreamFailed)
		case late && !s.cleansUp:
			r.skip(domain.ReasonTimeout)
		}
	}
	over := true
	for i := range steps {
		r := m.stepOf(w, i)
		if r != nil && m.why(w) == domain.ReasonTimeout && r.status == domain.StatusCancelled &&
			r.reason == domain.ReasonCancelled && r.finished >= w.started+modelWorkflow {
			r.reason = domain.ReasonTimeout
			if n := len(r.records); n > 0 && r.records[n-1].outcome == domain.AttemptCancelled &&
				r.records[n-1].claim == r.claims {
				r.records = slices.Clone(r.records)
				r.records[n-1].reason = domain.ReasonTimeout
			}
		}
		over = over && (r == nil && halted || r != nil && r.status.Final())
	}
	if over && w.accepted {
		w.ready = m.now
	}
	w.began = !over || !w.status.Final()
}

func (m *model) enterStep(id uuid.UUID, w *modelRun, step int) *modelRun {
	r := m.enter(id, w.job, domain.TriggerStep)
	r.modelDefinition, r.workflow, r.step = w.modelDefinition, w.id, step
	return r
}

// endWorkflow ends a workflow whose steps have ended, or whose time is up. Then steps that clean up may still run.
func (m *model) endWorkflow(w *modelRun) {
	halted, late := m.state(w)
	over, mayCleanUp := true, false
	var worst *modelRun
	for i, s := range w.steps {
		r := m.stepOf(w, i)
		ended := r != nil && r.status.Final()
		over = over && (ended || r == nil && halted)
		mayCleanUp = mayCleanUp || s.cleansUp && !ended
		if !ended || r.status == domain.StatusSucceeded || r.reason == domain.ReasonUpstreamFailed {
			continue
		}
		if dead := r.status == domain.StatusDead; worst == nil || dead && (worst.status != domain.StatusDead ||
			r.finishedAs < worst.finishedAs) {
			worst = r
		}
	}
	overdue := m.now >= w.started+modelWorkflow
	switch {
	case late, overdue && !over && (halted || !mayCleanUp):
		m.fail(w, domain.ReasonTimeout, 0)
	case over && halted:
		m.end(w, modelEnd{domain.StatusCancelled, m.why(w), domain.AttemptCancelled}, 0)
	case over && worst == nil:
		m.end(w, modelEnds["200"], 0)
	case over && worst.status == domain.StatusDead:
		m.end(w, modelEnd{domain.StatusDead, worst.reason, outcomeOf(worst.reason)}, 0)
	case over:
		m.end(w, modelEnd{domain.StatusDead, domain.ReasonUpstreamFailed, domain.AttemptFailed}, 0)
	case overdue:
		w.reason, w.ready = domain.ReasonTimeout, m.now+modelGrace
	default:
		w.ready = w.started + modelWorkflow
	}
}

// outcomeOf is how an attempt ended that a reason has ended.
func outcomeOf(reason domain.Reason) domain.AttemptOutcome {
	switch reason {
	case domain.ReasonTimeout, domain.ReasonApprovalExpired:
		return domain.AttemptTimedOut
	case domain.ReasonLost, domain.ReasonPoison, domain.ReasonSilent:
		return domain.AttemptLost
	}
	return domain.AttemptFailed
}

// decides is a person's decision about a step.
func (e modelEvent) decides(m *model) error {
	r := m.run(e.run)
	if !r.approves() || r.status != domain.StatusRunning || !r.accepted || r.asked() {
		return errBadState
	}
	if e.do == "approve" {
		m.end(r, modelEnds["200"], 0)
	} else {
		m.end(r, modelEnd{domain.StatusDead, domain.ReasonRejected, domain.AttemptFailed}, 0)
	}
	return nil
}

// keeps makes the steps that a rerun takes as succeeded: those that are set, and those that have succeeded before and
// depend on nothing that runs again.
func (e modelEvent) keeps(m *model, again *modelRun) {
	if e.with != "partly" {
		return
	}
	kept := map[int]bool{}
	of := m.run(e.of)
	for i, s := range again.steps {
		before := m.stepOf(of, i)
		kept[i] = before != nil && before.status == domain.StatusSucceeded && i != e.from && i != e.set &&
			!slices.ContainsFunc(s.on, func(on int) bool { return !kept[on] })
		if kept[i] || i == e.set {
			m.enterStep(m.made[modelCause{again.id, -1 - i}], again, i).stop(domain.StatusSucceeded, "")
		}
	}
}
