package history

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/runs"
)

// ran explains an instant by the run or the skip that covers it.
func (e *explaining) ran() {
	r := e.Run
	late := ""
	if r.Late {
		late = " late, after the job's tolerance" + e.because() + ","
		if written, ok := e.history.WrittenAfter(e.At); ok {
			late = fmt.Sprintf(" late, as the job was written only at %s,", pg.Stamp(written))
		}
	}
	if r.Trigger == domain.TriggerBackfill {
		late = " in a backfill of " + pg.Stamp(r.CreatedAt)
	}
	switch r.Status {
	case domain.StatusSucceeded:
		e.say(OutcomeSucceeded, "The slot ran%s under version %d and succeeded%s at %s.",
			late, r.JobVersion, attempts(r.Attempt), instantOf(r.FinishedAt))
		if e.reported {
			e.Text += " It was completed by its target in its own transaction."
		}
	case domain.StatusDead:
		e.say(OutcomeDead, "The slot ran%s under version %d and failed for good%s at %s: %s.",
			late, r.JobVersion, attempts(r.Attempt), instantOf(r.FinishedAt), why(r))
	case domain.StatusCancelled:
		e.say(OutcomeCancelled, "The slot's run was cancelled at %s: %s.", instantOf(r.FinishedAt), why(r))
	case domain.StatusSkipped:
		e.skipped()
	default:
		e.say(OutcomeInProgress, "The slot has a run under version %d, which is %s%s.",
			r.JobVersion, r.Status, e.progress())
	}
	if e.skip != nil {
		e.Text += fmt.Sprintf(" Before, it had been skipped: %s.", why(e.skip))
	}
}

// because says why the slot was taken too late.
func (e *explaining) because() string {
	if e.Run.Cause == nil {
		return ""
	}
	return ", because " + e.Run.Cause.Text
}

func (e *explaining) progress() string {
	switch r := e.Run; r.Status {
	case domain.StatusPending:
		if w := e.waiting; w != nil && e.frozen == "" {
			return ": " + e.waitText(w)
		}
		if r.Error != nil && r.NextAttemptAt != nil {
			return fmt.Sprintf(", %s; it is tried again at %s", *r.Error, instantOf(r.NextAttemptAt)) + e.unlessFrozen()
		}
		return e.waitsFor(" and starts when its queue has free concurrency or the job's active run has ended")
	case domain.StatusRetrying:
		return fmt.Sprintf(" after %s; the next attempt is at %s",
			counted(r.Attempt, "attempt"), instantOf(r.NextAttemptAt)) + e.unlessFrozen()
	case domain.StatusRunning:
		if len(r.Steps) > 0 && r.WaitingFor != nil {
			return " since " + instantOf(r.StartedAt) + "; " + r.WaitingFor.What
		}
		if r.AcceptedAt != nil {
			return fmt.Sprintf(": its target accepted attempt %d at %s and is still working", r.Attempt, instantOf(r.AcceptedAt))
		}
		return fmt.Sprintf(": attempt %d was sent at %s", r.Attempt, instantOf(r.StartedAt))
	}
	return ""
}

// unlessFrozen adds, to a prediction, the freeze that may delay it.
func (e *explaining) unlessFrozen() string {
	if e.frozen == "" {
		return ""
	}
	return "; but " + e.frozen
}

// waitsFor says what due work waits for: a freeze, a replica that serves the queue, the tenant's limit, or a
// replica that has what requests need. If it is none of these, waitsFor returns otherwise.
func (e *explaining) waitsFor(otherwise string) string {
	if e.frozen != "" {
		return ": " + e.frozen
	}
	if e.aside != "" {
		return ": it is " + e.aside
	}
	if e.unserved != "" {
		return fmt.Sprintf(": no live replica serves the queue %q", e.unserved)
	}
	if e.held != nil {
		return ": " + e.held.Reason
	}
	if e.short != "" {
		return ": " + e.short
	}
	return otherwise
}

// waitText says in a sentence what a run waits for.
func (e *explaining) waitText(w *runs.WaitingFor) string {
	r := e.Run
	text := "it has waited since " + pg.Stamp(w.Since) + " for "
	switch {
	case w.Kind == domain.WaitAside:
		return "since " + pg.Stamp(w.Since) + " it is " + w.What
	case w.Kind == domain.WaitGate:
		return text + "another run of the job to end"
	case w.Kind == domain.WaitSlots:
		if e.short != "" {
			return text + "free concurrency: " + e.short
		}
		return text + "free concurrency"
	case w.Until == nil: // a limit, or a queue that no replica serves
		return "it has waited since " + pg.Stamp(w.Since) + ": " + w.What
	}
	text += w.What
	if r.Error != nil {
		text += " (" + *r.Error + ")"
	}
	return fmt.Sprintf("%s, after %s; if its host cannot be reached before %s, the run is dead",
		text, counted(r.Attempt, "attempt"), pg.Stamp(*w.Until))
}

// skipped explains a slot that did not run.
func (e *explaining) skipped() {
	r := e.Run
	among := ""
	if s := r.Skipped; s != nil && s.Last.After(s.First) {
		number := "more than 1,000"
		if s.Count != nil {
			number = fmt.Sprint(*s.Count)
		}
		among = fmt.Sprintf(" It is one of %s from %s to %s.", number, pg.Stamp(s.First), pg.Stamp(s.Last))
	}
	reason := "was skipped: " + why(r)
	switch reasonOf(r) {
	case domain.ReasonMissed:
		reason = fmt.Sprintf(
			"was missed: when a replica found it at %s, its tolerance had passed, and the policy for missed slots skipped it",
			pg.Stamp(r.CreatedAt)) + e.because()
	case domain.ReasonPaused:
		reason = "was skipped because it passed while the job was paused"
		if p := e.pauseAt(*e.Slot); p != nil {
			reason += p.describe()
		}
	case domain.ReasonOverlap:
		reason = "was skipped because another run of the job had not ended"
		if r.BlockedBy != nil {
			reason = fmt.Sprintf("was skipped because run %s of the job had not ended", r.BlockedBy)
		}
	case domain.ReasonLimit:
		reason = "was skipped because as many runs of the job were waiting as may (max_pending_runs)"
	case domain.ReasonExpired:
		reason = "was never sent: its expires_after had passed"
	case domain.ReasonJobDeleted:
		reason = "was skipped because the job was deleted"
	}
	if reasonOf(r) == domain.ReasonPaused && r.Skipped != nil && e.backfill == "" {
		among += fmt.Sprintf(" A backfill from %s to %s makes up for it.",
			pg.Stamp(r.Skipped.First), pg.Stamp(r.Skipped.Last.Add(time.Second))) // the end is not included
	}
	e.say(OutcomeSkipped, "The slot %s.%s", reason, among)
}

// slotWithout explains a slot that no row covers.
func (e *explaining) slotWithout(slot domain.ExpectedSlot) {
	due := e.history.Due(slot.At)
	paused := e.pauseAt(e.now)
	if e.until != nil && !slot.At.Before(*e.until) {
		paused = nil // the pause will have ended by then
	}
	switch {
	case slot.Duty == domain.Waiting && e.over != nil && slot.At.Before(*e.over) && e.history.OneShot(slot.At):
		e.say(OutcomeWaiting, "The job was paused until %s; its one slot fires as soon as a replica has resumed it.",
			pg.Stamp(*e.over))
	case slot.Duty == domain.Waiting && e.over != nil && slot.At.Before(*e.over):
		e.say(OutcomePaused,
			"The slot passed while the job was paused%s; the skip is recorded as soon as a replica has resumed it.",
			e.pauseAt(slot.At).describe())
	case slot.Duty == domain.Waiting && e.state == domain.JobPaused && paused != nil && e.history.OneShot(slot.At):
		e.say(OutcomePaused, "The job %s; its one slot fires when it is resumed, not before %s.",
			paused.state(), pg.Stamp(due))
	case slot.Duty == domain.Waiting && e.state == domain.JobPaused && paused != nil && slot.At.After(e.now):
		e.say(OutcomePaused,
			"The slot is still to come, and the job %s: unless it is resumed before, the slot will be skipped.",
			paused.state())
	case slot.Duty == domain.Waiting && e.state == domain.JobPaused && paused != nil:
		e.say(OutcomePaused, "The job %s, and the slot passed meanwhile; the skip is recorded when it is resumed.",
			paused.state())
	case due.After(e.now) && slot.Duty != domain.Unsure:
		e.say(OutcomeUpcoming, "The slot is still to come: it is due at %s%s.", pg.Stamp(due), e.unlessFrozen())
	case slot.Duty == domain.Waiting:
		e.say(OutcomeWaiting, "The slot has been due since %s and waits%s.",
			pg.Stamp(due), e.waitsFor(" for a replica to claim it"))
	case slot.At.Before(e.kept):
		e.say(OutcomeUnknown, "The job had a slot then, but the history before %s is no longer kept.",
			pg.Stamp(e.kept))
	case slot.Duty == domain.Unsure:
		e.say(OutcomeUnknown,
			"The job was changed or ended at about that instant; its history does not show whether the slot was due before.")
	default:
		e.say(OutcomeUnaccounted,
			"The slot has neither a run nor a recorded skip. This should not happen: `punctual verify` looks for more.")
	}
}

// noSlot explains an instant at which the job has no slot.
func (e *explaining) noSlot(version domain.Version, exists bool) {
	if e.forgotten() {
		e.say(OutcomeUnknown,
			"The version of the job at that instant is no longer kept, so it is unknown whether the job had a slot.")
		return
	}
	if !exists {
		created := ""
		if len(e.history.Versions) > 0 {
			created = fmt.Sprintf(": it was created at %s", pg.Stamp(e.history.Versions[0].From))
		}
		e.say(OutcomeBeforeCreated, "The job did not exist yet%s.", created)
		return
	}
	ended := e.state == domain.JobCompleted && e.ended != nil && !e.At.Before(*e.ended)
	switch {
	case version.State == domain.JobDeleted:
		e.say(OutcomeDeleted, "The job had been deleted at %s.", pg.Stamp(version.From))
	case e.state == domain.JobDeleted && e.ended != nil && !e.At.Before(*e.ended):
		e.say(OutcomeDeleted, "The job had completed, and left the list of jobs by %s.",
			pg.Stamp(*e.ended))
	case ended:
		e.say(OutcomeCompleted, "The job had completed at %s: no slot was left.", pg.Stamp(*e.ended))
	case version.State == domain.JobCompleted:
		e.say(OutcomeCompleted, "The job had completed by %s: no slot was left.", pg.Stamp(version.From))
	default:
		e.say(OutcomeNoSlot, "There is no slot at that instant under version %d (%s)%s.",
			version.Number, describe(version.Schedule), e.nearest())
	}
}

// dated says what has become of a dated run.
func (e *explaining) dated(key string, run uuid.UUID, due time.Time, state string) string {
	text := fmt.Sprintf("A dated run with the key %.80q ", key)
	switch state {
	case "":
		return text + "is due at " + pg.Stamp(due) + e.unlessFrozen() + "."
	case "due":
		return text + "has been due since " + pg.Stamp(due) + e.waitsFor(" and is about to be claimed") + "."
	case "aside":
		return text + "was due at " + pg.Stamp(due) + " and is set aside until the job is resumed."
	}
	return fmt.Sprintf("%swas due at %s; the status of its run %s is %s.", text, pg.Stamp(due), run, state)
}

// forgotten reports whether the version in force at the instant has been removed: the version numbers have a gap there.
func (e *explaining) forgotten() bool {
	before := int32(0)
	for _, v := range e.history.Versions {
		if v.From.After(e.At) {
			return v.Number > before+1
		}
		before = v.Number
	}
	return false
}

func (e *explaining) nearest() string {
	switch p, n := e.PreviousSlot, e.NextSlot; {
	case p != nil && n != nil:
		return fmt.Sprintf("; the nearest slots are %s and %s", pg.Stamp(*p), pg.Stamp(*n))
	case p != nil:
		return fmt.Sprintf("; the last slot before it is %s", pg.Stamp(*p))
	case n != nil:
		return fmt.Sprintf("; the first slot after it is %s", pg.Stamp(*n))
	}
	return ""
}

func (e *explaining) say(outcome Outcome, format string, args ...any) {
	e.Outcome, e.Text = outcome, fmt.Sprintf(format, args...)
}

// state says that the job is in the pause.
func (p *Pause) state() string {
	if p.Ended != nil {
		return "was paused" + p.describe()
	}
	return "has been paused" + p.describe()
}

func (p *Pause) describe() string {
	text := " since " + pg.Stamp(p.Since)
	if p.Ended != nil {
		text = fmt.Sprintf(" from %s to %s", pg.Stamp(p.Since), pg.Stamp(*p.Ended))
	} else if p.Until != nil {
		text += " until " + pg.Stamp(*p.Until)
	}
	if p.By != nil {
		text += ", by " + *p.By
	}
	if p.Note != "" {
		text += fmt.Sprintf(" (%s)", p.Note)
	}
	return text
}

func describe(s jobspec.Schedule) string {
	switch s.Kind() {
	case jobspec.KindCron:
		if s.Timezone != "" {
			return fmt.Sprintf("cron %s in %s", s.Cron, s.Timezone)
		}
		return "cron " + s.Cron
	case jobspec.KindEvery:
		return "every " + s.Every.String()
	case jobspec.KindAt:
		if s.Timezone != "" {
			return fmt.Sprintf("once at %s in %s", s.At, s.Timezone)
		}
		return "once at " + s.At.String()
	case jobspec.KindDelay:
		return "once after " + s.Delay.String()
	case jobspec.KindEvent:
		if s.Filter != "" {
			return fmt.Sprintf("at event %s with %s", s.Event, s.Filter)
		}
		return "at event " + s.Event
	case jobspec.KindNone:
	}
	return "only when triggered"
}

// why returns a run's reason, with its error.
func why(r *runs.Run) string {
	if r.Error != nil {
		return fmt.Sprintf("%s (%s)", reasonOf(r), *r.Error)
	}
	return string(reasonOf(r))
}

func reasonOf(r *runs.Run) domain.Reason { return pg.OrZero(r.Reason) }

func attempts(n int) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" after %d attempts", n)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func instantOf(t *time.Time) string {
	if t == nil {
		return "an unknown instant"
	}
	return pg.Stamp(*t)
}
