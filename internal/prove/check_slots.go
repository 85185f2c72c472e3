package prove

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// slots compares the slots of each job with its runs and skips.
func (k *check) slots() {
	for i := range k.Jobs {
		k.slotsOf(&k.Jobs[i])
	}
	for id, runs := range k.byJob {
		if k.jobs[id] == nil {
			k.fail(NoPhantoms, "%d runs of the unknown job %s", len(runs), id)
		}
	}
}

func (k *check) slotsOf(j *Job) {
	slots, err := dueSlots(*j, k.Now, k.DefaultJitter)
	if err != nil {
		k.fail(NoPhantoms, "job %s: its slots cannot be worked out: %v", j.Name, err)
		return
	}
	settled := k.Now.Add(-k.Settle)
	expected := make(map[time.Time]bool, len(slots)) // whether the slot must have a run or a skip
	for _, s := range slots {
		expected[s.At] = !s.Optional && s.At.Add(longestJitter(j.Versions[0].Definition, k.DefaultJitter)).Before(settled)
	}
	got := make(map[time.Time]int, len(slots))
	for _, r := range k.byJob[j.ID] {
		switch {
		case r.backfilled():
			k.backfillOf(j, r)
		case !r.ofSlot():
		case r.isRange():
			k.rangeOf(j, r, slots, got)
		default:
			got[r.ScheduledFor.UTC()]++
			k.runOf(j, r, expected)
		}
	}
	for _, s := range slots {
		switch n := got[s.At]; {
		case n == 0 && expected[s.At]:
			instead := ""
			if r := k.runs[domain.SlotRunID(j.ID, s.At)]; r != nil {
				instead = fmt.Sprintf(", but a run with the trigger %s", r.Trigger)
			}
			k.fail(OneRunPerSlot, "job %s: slot %s has neither%s; its versions are %s", j.Name, clock(s.At), instead, j.story())
		case n > 1:
			k.fail(OneRunPerSlot, "job %s: slot %s has %d", j.Name, clock(s.At), n)
		}
	}
}

// rangeOf counts the slots that a skip covers.
func (k *check) rangeOf(j *Job, r *Run, slots []dueSlot, got map[time.Time]int) {
	n := 0
	for _, s := range slots {
		if !s.At.Before(*r.SkippedFirst) && !s.At.After(*r.SkippedLast) {
			got[s.At]++
			n++
			if r.Reason == "paused" && !j.pausedAt(s.At) &&
				!j.pausedAt(s.At.Add(longestJitter(j.Versions[0].Definition, k.DefaultJitter))) {
				k.fail(PausesEnd, "job %s: slot %s is skipped as paused", j.Name, clock(s.At))
			}
		}
	}
	if r.SkippedCount != nil && *r.SkippedCount != n {
		k.fail(OneRunPerSlot, "job %s: the skip from %s to %s counts %d slots, which are %d", j.Name, clock(*r.SkippedFirst),
			clock(*r.SkippedLast), *r.SkippedCount, n)
	}
	if r.Status != "skipped" || r.Reason == "" {
		k.fail(OneRunPerSlot, "job %s: the skip from %s is %s without a reason", j.Name, clock(*r.SkippedFirst), r.Status)
	}
}

// runOf checks that a run's slot exists, that the run has the id of its slot, and when it is due.
func (k *check) runOf(j *Job, r *Run, expected map[time.Time]bool) {
	if _, ok := expected[r.ScheduledFor.UTC()]; !ok {
		k.failRun(NoPhantoms, r, "is for no slot of its job")
		return
	}
	if !r.ofItsSlot() {
		k.failRun(OneRunPerSlot, r, "does not have the id of its slot")
	}
	k.dueOf(j, r)
}

// backfillOf checks a run that a backfill made. Some version of the job must have its slot, which may lie before the
// job was created. The run must be the slot's own, or repeat a slot that has a run already. It does not replace what
// the schedule made of the slot, whether a run or a skip.
func (k *check) backfillOf(j *Job, r *Run) {
	if !slotOfAny(*j, r.ScheduledFor, k.DefaultJitter) {
		k.failRun(NoPhantoms, r, "was backfilled, and is for no slot of any version of its job")
		return
	}
	if !r.ofItsSlot() && (r.ID.Version() != 7 || k.runs[domain.SlotRunID(j.ID, r.ScheduledFor)] == nil) {
		k.failRun(OneRunPerSlot, r, "was backfilled, and neither has the id of its slot nor repeats a run that has")
	}
	k.dueOf(j, r)
}

// dueOf checks that a run is due within the jitter of its slot.
func (k *check) dueOf(j *Job, r *Run) {
	longest := time.Duration(0)
	for _, v := range j.Versions {
		longest = max(longest, longestJitter(v.Definition, k.DefaultJitter))
	}
	if late := r.DueAt.Sub(r.ScheduledFor); late < 0 || late > longest || (late == longest && late > 0) {
		k.failRun(NeverEarly, r, "is due %s later, outside its jitter of %s", late, longest)
	}
}

// ends checks that every run is final, and that every dead run has one dead letter.
func (k *check) ends() {
	listed := make(map[uuid.UUID]int, len(k.DeadLetters))
	for _, id := range k.DeadLetters {
		listed[id]++
		if r := k.runs[id]; r == nil || r.Status != "dead" {
			k.fail(DeadAreListed, "run %s has a dead letter and is not dead", id)
		}
	}
	for i := range k.Runs {
		r := &k.Runs[i]
		if j := k.jobs[r.Job]; j != nil && j.Tenant != r.Tenant {
			k.failRun(TenantsAddUp, r, "is of tenant %d, and its job of %d", r.Tenant, j.Tenant)
		}
		if !r.final() && !r.DueAt.After(k.Now.Add(-k.Settle)) {
			k.failRun(AllFinal, r, "is %s", r.Status)
		}
		if !r.isRange() && r.CreatedAt.Before(r.DueAt) {
			k.failRun(NeverEarly, r, "(%s) was made %s before it was due", r.Trigger, r.DueAt.Sub(r.CreatedAt))
		}
		if r.ClaimedAt != nil && r.ClaimedAt.Before(r.DueAt) {
			k.failRun(NeverEarly, r, "was claimed %s before it was due", r.DueAt.Sub(*r.ClaimedAt))
		}
		if r.Status == "dead" && r.Step == "" && listed[r.ID] != 1 {
			k.failRun(DeadAreListed, r, "is dead and has %d dead letters", listed[r.ID])
		}
		if k.AllSucceed && (r.Status != "succeeded" || r.Attempt != 1 || r.Reason != "") {
			k.failRun(NothingFailed, r, "is %s after %d attempts", r.Status, r.Attempt)
		}
	}
}

// feed compares the feed of changes with the runs of its tenants.
func (k *check) feed() {
	recorded := make(map[uuid.UUID]bool, len(k.Recorded))
	for _, id := range k.Recorded {
		recorded[id] = true
		if r := k.runs[id]; r == nil || !r.final() {
			k.fail(FeedIsWhole, "run %s is in the feed and has not ended", id)
		}
	}
	for i := range k.Runs {
		if r := &k.Runs[i]; r.final() && !recorded[r.ID] && slices.Contains(k.Fed, r.Tenant) {
			k.failRun(FeedIsWhole, r, "is %s and not in the feed", r.Status)
		}
	}
}

// rest checks that everything is empty that must be empty at rest.
func (k *check) rest() {
	for _, id := range k.Ready {
		k.fail(NothingLeft, "run %s is in ready", id)
	}
	for _, id := range k.Claimed {
		k.fail(NothingLeft, "run %s is in claims", id)
	}
	for _, g := range k.Gates {
		k.fail(NothingLeft, "the gate of job %s is held by run %s", k.name(g.Job), g.Run)
	}
	for _, j := range k.Jobs {
		if j.Enabled && j.NextRun != nil && j.NextRun.Before(k.Now.Add(-k.Settle)) {
			k.fail(NoWedge, "job %s has been due since %s", j.Name, clock(*j.NextRun))
		}
	}
}

// story describes the versions of a job.
func (j *Job) story() string {
	var text strings.Builder
	for _, v := range j.Versions {
		fmt.Fprintf(&text, "%s %s; ", clock(v.From), v.State)
	}
	return text.String()
}
