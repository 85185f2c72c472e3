package history

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// jobCheck merges the slots of a job's history with the job's rows, both in order. It holds one slot, the runs of one
// instant, and the skips that reach beyond that instant.
type jobCheck struct {
	*verification
	job     *verifyJob
	now     time.Time
	slot    domain.ExpectedSlot // the next one to settle
	more    bool
	pull    func() (domain.ExpectedSlot, error, bool)
	stop    func()
	skips   []verifyRow // skips that may cover the next slot
	runs    []verifyRow // runs of the latest instant
	matched bool        // whether that instant is a slot
	overdue Violation
	token   token // of the newest slot that was claimed in time

	timetables []*jobspec.Timetable // of all versions, computed when needed
}

func newJobCheck(v *verification, j *verifyJob, now time.Time) *jobCheck {
	c := &jobCheck{verification: v, job: j, now: now}
	c.pull, c.stop = iter.Pull2(j.history.Slots(v.summary.From, v.summary.To))
	v.summary.Jobs++
	c.advance()
	return c
}

// advance moves on to the next slot.
func (c *jobCheck) advance() {
	if c.job.broken != nil {
		c.more = false
		return
	}
	c.slot, c.job.broken, c.more = c.pull()
	c.more = c.more && c.job.broken == nil
}

// unreadable reports whether the job's slots cannot be worked out. Its rows are then compared with nothing.
func (c *jobCheck) unreadable() bool { return c.job.broken != nil }

// row adds the next row of the job.
func (c *jobCheck) row(r verifyRow) {
	if r.isSkip() {
		c.summary.Skips++
	} else {
		c.summary.Runs++
	}
	if !r.held && r.createdAt.Before(c.now.Add(-c.options.Grace)) {
		c.report(Violation{
			Kind: ViolationUnended, Slot: &r.at, Runs: []uuid.UUID{r.id},
			Detail: fmt.Sprintf("the run is %s, no live replica holds it, and it waits in no list or has waited too long",
				r.status),
		})
	}
	if !r.ofSlot() {
		return
	}
	c.settleBefore(r.start())
	if r.isSkip() {
		c.skip(r)
	} else {
		c.runs = append(c.runs, r)
	}
}

// settleBefore settles the slots before an instant, and the collected runs if they are before it.
func (c *jobCheck) settleBefore(instant time.Time) {
	for c.more && c.slot.At.Before(instant) && c.failed == nil {
		c.settle()
		c.advance()
	}
	if len(c.runs) > 0 && c.runs[0].at.Before(instant) {
		c.unmatched()
		c.runs, c.matched = c.runs[:0], false
	}
}

// unmatched reports the runs of the latest instant if that instant is not a slot.
func (c *jobCheck) unmatched() {
	if c.matched || c.unreadable() {
		return
	}
	for _, r := range c.runs {
		if r.trigger != domain.TriggerBackfill || !c.ever(r.at) {
			c.report(Violation{
				Kind: ViolationPhantom, Slot: &r.at, Runs: []uuid.UUID{r.id}, Detail: "no version of the job has a slot then",
			})
		}
	}
}

// ever reports whether any version of the job has a slot at an instant, even if the version was not valid then: a
// backfill uses the schedule of the day on which it was requested, also for slots from before the job.
func (c *jobCheck) ever(at time.Time) bool {
	if c.timetables == nil {
		c.timetables = c.job.history.Timetables()
	}
	return slices.ContainsFunc(c.timetables, func(t *jobspec.Timetable) bool { return t.Has(at) })
}

// settle compares one slot with the rows that cover it.
func (c *jobCheck) settle() {
	at := c.slot.At
	var covering []uuid.UUID
	fired, backfilled := 0, false
	// A run before the next row's start has been collected already, because rows are ordered.
	if len(c.runs) > 0 && c.runs[0].at.Equal(at) {
		c.matched = true
		for _, r := range c.runs {
			if r.trigger == domain.TriggerBackfill { // the slot was skipped before, or is repeated
				backfilled = true
				continue
			}
			fired++
			covering = append(covering, r.id)
		}
	}
	c.skips = slices.DeleteFunc(c.skips, func(r verifyRow) bool { return r.last.Before(at) })
	for _, r := range c.skips {
		covering = append(covering, r.id)
	}
	switch {
	case len(covering) > 1 && fired > 0: // several skips alone have been reported as an overlap
		c.report(Violation{
			Kind: ViolationDouble, Slot: &at, Count: len(covering), Runs: covering,
			Detail: fmt.Sprintf("%d rows cover the slot", len(covering)),
		})
	case len(covering) > 0 || backfilled:
	case c.slot.Duty == domain.Unsure:
		c.summary.NotCheckable++
		return
	case c.slot.Duty == domain.Waiting:
		c.waiting()
		return
	default:
		c.report(Violation{
			Kind: ViolationMissing, Slot: &at,
			Detail: fmt.Sprintf("version %d of the job had this slot, but it has neither a run nor a skip", c.slot.Version),
		})
	}
	c.summary.Slots++
}

// waiting notes a slot that is still to be claimed. Slots that have been due for long are reported together: usually no
// replica is there to claim them, and there are many.
func (c *jobCheck) waiting() {
	at := c.slot.At
	if !c.job.enabled || !c.due(at).Before(c.now.Add(-c.options.Grace)) {
		c.summary.Waiting++
		return
	}
	if c.job.frozen {
		c.summary.Waiting++
		c.summary.Frozen++
		return
	}
	if c.overdue.Count == 0 {
		c.overdue = Violation{Kind: ViolationOverdue, Slot: &at}
	}
	c.overdue.Last = &at
	c.overdue.Count++
}

// due returns since when a slot should have a run or skip. If the slot passed while the job was paused, that is the end
// of the pause.
func (c *jobCheck) due(at time.Time) time.Time {
	return jobspec.Later(c.job.history.Due(at), c.job.over)
}

// skip adds a skip. It checks that the skip covers the slots it says it does, and none that another skip covers.
func (c *jobCheck) skip(r verifyRow) {
	for _, other := range c.skips {
		if !other.last.Before(*r.first) {
			c.report(Violation{
				Kind: ViolationOverlap, Slot: r.first, Last: r.last, Runs: []uuid.UUID{other.id, r.id},
				Detail: fmt.Sprintf("the skip overlaps the one from %s to %s", pg.Stamp(*other.first), pg.Stamp(*other.last)),
			})
		}
	}
	c.skips = append(c.skips, r)
	c.count(r)
}

// mostCounted is the highest number of slots that a skip stores. It stores no higher number.
const mostCounted = 1000

// count compares a skip's number of slots with the number of slots that it covers.
func (c *jobCheck) count(r verifyRow) {
	if c.unreadable() {
		return
	}
	least, most := 0, 0
	for slot, err := range c.job.history.Slots(*r.first, *r.last) {
		if err != nil || most > mostCounted {
			break
		}
		most++
		if slot.Duty != domain.Unsure {
			least++
		}
	}
	bad := Violation{Kind: ViolationCount, Slot: r.first, Last: r.last, Runs: []uuid.UUID{r.id}}
	switch {
	case most == 0:
		bad.Kind, bad.Detail = ViolationPhantom, "no version of the job has a slot in the skip's range"
	case r.count == nil && most <= mostCounted:
		bad.Detail = fmt.Sprintf("the skip records more than %d slots, but there are %d", mostCounted, most)
	case r.count != nil && (*r.count < least || *r.count > most):
		bad.Count = *r.count
		bad.Detail = fmt.Sprintf("the skip records %d slots, but there are %d", *r.count, most)
	default:
		return
	}
	c.report(bad)
}

// finish settles the slots that are left after the last row.
func (c *jobCheck) finish() {
	c.settleBefore(c.summary.To.Add(1))
	if c.job.contrary != "" {
		c.report(Violation{Kind: ViolationContrary, Detail: c.job.contrary})
	}
	switch {
	case c.unreadable():
		c.report(Violation{
			Kind: ViolationUnreadable, Detail: "this binary cannot read the job's history: " + c.job.broken.Error(),
		})
	case c.overdue.Count > 0:
		c.overdue.Detail = fmt.Sprintf(
			"due since %s and not claimed; no replica serves its queue, it has fallen behind, or it catches up run by run",
			pg.Stamp(c.due(*c.overdue.Slot)))
		c.report(c.overdue)
	}
}

func (c *jobCheck) report(v Violation) {
	v.Tenant, v.Job, v.JobID = c.job.tenant, c.job.name, c.job.id
	c.verification.report(v)
}
