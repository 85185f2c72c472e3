package history

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// recorded is what a row says about its run, to be compared with itself and with its job.
type recorded struct {
	tenant, version            int32
	due                        time.Time
	claimed, started, finished *time.Time // of the latest attempt
	fence                      int64      // 0: it was never claimed
	attempt                    int16
	reason                     domain.Reason
	late                       bool
	step                       string
	parent                     *uuid.UUID
	cutOff                     bool // an attempt of it was cut off, of those runs for which that matters
}

// contraryJob is SQL for what contradicts itself about a job j with its schedule s.
const contraryJob = `
		       CASE WHEN s.tenant <> j.tenant THEN 'its schedule is of another tenant'
		            WHEN s.version <> j.version
		            THEN 'its schedule is of version ' || s.version || ', and the job of ' || j.version
		            WHEN j.state = 'active' AND s.scheduled_for IS NOT NULL AND NOT s.enabled
		            THEN 'the job is active, and its schedule is not: its slots are not claimed'
		            WHEN j.version <> (SELECT max(v.version) FROM punctual.job_versions v WHERE v.job_id = j.id)
		            THEN 'the job is of version ' || j.version || ', and the newest is another'
		            ELSE '' END`

// compareRecord compares a row with itself and with its job.
func (c *jobCheck) compareRecord(r verifyRow) {
	found := Violation{Slot: &r.at, Runs: []uuid.UUID{r.id}}
	if found.Kind, found.Detail = ViolationEarly, r.early(); found.Detail != "" {
		c.report(found)
	}
	if r.step != "" && (r.parent == nil || domain.StepRunID(*r.parent, r.step) != r.id) {
		found.Kind, found.Detail = ViolationDouble, fmt.Sprintf("it is not the run of step %s: that has another id", r.step)
		c.report(found)
	}
	found.Kind = ViolationContrary
	if r.tenant != c.job.owner {
		found.Detail = "the run is of another tenant than its job"
		c.report(found)
	}
	for _, why := range []string{r.ending(), r.lateness(c.job.policyOf(r.version).tolerance), c.token.follow(r)} {
		if found.Detail = why; why != "" {
			c.report(found)
		}
	}
}

// clockPrecision is by how much instants of two transactions that follow each other may seem to be in the other
// order: an instant of a row is that of a statement, or of the beginning of its transaction.
const clockPrecision = time.Second

// early says by how much the run began before it was due; empty: it did not. A slot is claimed by the very clock
// that it is due by. What an event or the end of a run has made is due when it was written.
func (r verifyRow) early() string {
	due, began := r.due, r.claimed
	switch r.trigger {
	case domain.TriggerSchedule, domain.TriggerCatchup:
		if r.started != nil && (began == nil || r.started.Before(*began)) {
			began = r.started
		}
	case domain.TriggerManual, domain.TriggerBackfill, domain.TriggerReplay:
		due = due.Add(-clockPrecision)
	default:
		due = r.createdAt.Add(-clockPrecision)
	}
	if began == nil || !began.Before(due) {
		return ""
	}
	return fmt.Sprintf("it began at %s, and was due at %s", pg.Stamp(*began), pg.Stamp(due))
}

// ending says how the end of a run contradicts itself; empty: it does not.
func (r verifyRow) ending() string {
	unsent := r.reason == domain.ReasonExpired || r.reason == domain.ReasonUnreachable
	switch r.status {
	case domain.StatusSucceeded:
		switch {
		case r.reason != "":
			return fmt.Sprintf("it has succeeded, with the reason %s", r.reason)
		case r.fence == 0 && r.step == "":
			return "it has succeeded, and was never claimed"
		}
	case domain.StatusDead:
		if r.reason == "" {
			return "it is dead without a reason"
		}
	default:
		return ""
	}
	if r.started != nil && r.finished != nil && r.finished.Before(*r.started) && !unsent {
		return fmt.Sprintf("it ended %s before it started", r.started.Sub(*r.finished))
	}
	return ""
}

// lateness says how a run's mark as late contradicts its claim; empty: it does not. The claim of the first attempt
// decides, and a row has only that of the latest, which may be the same. A run that catches up is late in any case.
func (r verifyRow) lateness(tolerance time.Duration) string {
	if r.claimed == nil || r.isSkip() || tolerance < time.Second || r.trigger.Ordered() {
		return ""
	}
	waited := r.claimed.Sub(r.due)
	switch {
	case r.trigger == domain.TriggerCatchup && !r.late:
		return "it has caught up, and is not marked as late"
	case r.trigger != domain.TriggerCatchup && r.late && waited <= tolerance:
		return fmt.Sprintf("it is marked as late, and was claimed %s after it was due", waited)
	case !r.late && waited > tolerance && r.attempt == 1 && !r.cutOff && r.status == domain.StatusSucceeded:
		return fmt.Sprintf("it was claimed %s after it was due, and is not marked as late", waited)
	}
	return ""
}

// token is a fencing token and the slot that it was given for.
type token struct {
	run   uuid.UUID
	due   time.Time
	fence int64
}

// inTime is how soon a run is claimed whose token tells the order of claims: a slot that is due later is claimed later.
const inTime = time.Minute

// follow compares the token of a slot's run with that of a slot before. Only runs that were claimed in time, once, are
// compared. So the order of claims is known, whatever the clock did.
func (t *token) follow(r verifyRow) string {
	if r.fence == 0 || r.attempt != 1 || r.claimed == nil || r.claimed.Sub(r.due) > inTime ||
		r.trigger != domain.TriggerSchedule || r.status != domain.StatusSucceeded {
		return ""
	}
	before := *t
	if before.run == uuid.Nil || r.due.Sub(before.due) > inTime {
		*t = token{r.id, r.due, r.fence}
	}
	if before.run != uuid.Nil && r.due.Sub(before.due) > inTime && r.fence <= before.fence {
		return fmt.Sprintf("its fencing token, %d, is not greater than that of the earlier run %s, %d",
			r.fence, before.run, before.fence)
	}
	return ""
}
