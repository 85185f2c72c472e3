package claim_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
)

// missedSlots is a job with five missed slots, and two replicas that claim at once.
type missedSlots struct {
	Replica
	other Replica
	job   uuid.UUID
	slots []time.Time
}

// missFive makes a job whose last five slots, one a day, were missed. No other slot is near.
func missFive(t *testing.T, options ...Option) *missedSlots {
	c := NewReplica(t)
	first := c.Clock().Truncate(time.Second).Add(-108 * time.Hour)
	daily := func(d *jobspec.Definition) {
		Every(24 * time.Hour)(d)
		d.Schedule.StartsAt = jobspec.InstantOf(first)
	}
	job := c.Create("job", append([]Option{daily, Missed(jobspec.MissedFireAll), Window(30 * 24 * time.Hour)}, options...)...)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1`, job.ID, first.Add(-time.Hour))
	c.SetNext(job.ID, first)
	m := &missedSlots{Replica: c, other: AsReplica(c.Fixture), job: job.ID}
	for day := range 5 {
		m.slots = append(m.slots, first.AddDate(0, 0, day))
	}
	return m
}

// claims lets both replicas claim at once.
func (m *missedSlots) claims() (begun []domain.Assignment) {
	var all sync.WaitGroup
	var lock sync.Mutex
	for _, c := range []Replica{m.Replica, m.other} {
		all.Go(func() {
			waiting := scheduler.Claim{Replica: c.ReplicaID, Work: domain.WorkReady, Quotas: c.Asks(10, true).Quotas}
			due, err := c.Claims.ClaimDue(m.T.Context(), c.Asks(10, true))
			ready, failed := c.Claims.ClaimReady(m.T.Context(), waiting)
			if err != nil || failed != nil {
				m.T.Errorf("a claim: %v, %v", err, failed)
			}
			lock.Lock()
			defer lock.Unlock()
			begun = append(begun, slices.Concat(due.Runs, ready.Runs)...)
		})
	}
	all.Wait()
	return begun
}

// soon makes what waits for an instant due, and looks once more at what waits behind another run.
func (m *missedSlots) soon() {
	m.Exec(`UPDATE punctual.schedules SET next_run_at = now() - interval '5 min' WHERE job_id = $1 AND scheduled_for < now()`, m.job)
	m.Exec(`UPDATE punctual.ready SET due_at = now() WHERE waits = 'turn'`)
}

// next claims until a run begins, and fails the test if two do.
func (m *missedSlots) next(what string) domain.Assignment {
	m.T.Helper()
	for range 10 {
		m.soon()
		if begun := m.claims(); len(begun) > 0 {
			m.soon()
			if begun = append(begun, m.claims()...); len(begun) > 1 {
				m.T.Fatalf("%s: %d runs are under way at once", what, len(begun))
			}
			return begun[0]
		}
	}
	m.T.Fatalf("%s: nothing begins", what)
	return domain.Assignment{}
}

// inOrder lets the given slots run, the last ones of which nothing has begun, and fails the test if another one comes.
func (m *missedSlots) inOrder(what string, slots ...time.Time) {
	m.T.Helper()
	for _, slot := range slots {
		a := m.next(fmt.Sprintf("%s: the slot of %s", what, slot.Format(time.DateOnly)))
		if !a.ScheduledFor.Equal(slot) || a.Trigger != domain.TriggerCatchup {
			m.T.Fatalf("%s: %s of %s begins, and not the slot of %s", what, a.Trigger, a.ScheduledFor, slot)
		}
		m.Finish(Succeeded(a))
	}
}

// Under fire_all missed slots run one at a time, the oldest first, whatever the policy of overlap and whichever replica
// claims. An edit of the schedule makes runs of all of them at once. (They arrived as 50, 20, 30, 40, 10.)
func TestMissedSlotsComeInOrder(t *testing.T) {
	t.Parallel()
	for _, policy := range []jobspec.ConcurrencyPolicy{
		jobspec.PolicyAllow, jobspec.PolicyQueue, jobspec.PolicyForbid, jobspec.PolicyWait, jobspec.PolicyReplace,
	} {
		for name, edit := range map[string]Option{"": nil, " edited": Every(25 * time.Hour)} {
			t.Run(string(policy)+name, func(t *testing.T) {
				m := missFive(t, Overlapping(policy))
				if edit != nil {
					m.Edit("job", edit)
					m.SetNext(m.job, m.Clock().Add(12*time.Hour))
				}
				m.inOrder("all", m.slots...)
				if n := m.Ready(m.job); n != 0 {
					t.Errorf("%d still wait", n)
				}
			})
		}
	}
}

func ofTheWeek(o *history.VerifyOptions) { o.From = o.To.AddDate(0, 0, -7) }

// The next missed slot waits for the end of the one before and comes in order, whatever edits and cancels come between.
func TestMissedSlotsStayInOrder(t *testing.T) {
	t.Parallel()
	edited := func(edits ...Option) func(*missedSlots, domain.Assignment) []time.Time {
		return func(m *missedSlots, first domain.Assignment) []time.Time {
			for _, edit := range edits {
				m.Edit("job", edit)
			}
			m.soon()
			if begun := m.claims(); len(begun) > 0 {
				m.T.Errorf("the slot of %s begins before the first one has ended", begun[0].ScheduledFor)
			}
			m.Finish(Succeeded(first))
			return m.slots[1:]
		}
	}
	for name, meanwhile := range map[string]func(*missedSlots, domain.Assignment) []time.Time{
		"the next ones are cancelled": func(m *missedSlots, first domain.Assignment) []time.Time {
			m.Cancel(domain.SlotRunID(m.job, m.slots[1]))
			m.Finish(Succeeded(first))
			m.Cancel(domain.SlotRunID(m.job, m.slots[2])) // it is due now
			return m.slots[3:]
		},
		"the job is edited":            edited(Described("better")),
		"its runs must not overlap":    edited(Forbid),
		"they must not, and then may":  edited(Forbid, Overlapping(jobspec.PolicyAllow)),
		"its missed slots may overlap": edited(func(d *jobspec.Definition) { d.Missed.Concurrency = jobspec.MissedAllow }),
	} {
		t.Run(name, func(t *testing.T) {
			m := missFive(t)
			if first := m.next("the first"); !first.ScheduledFor.Equal(m.slots[0]) {
				t.Errorf("the slot of %s begins first", first.ScheduledFor)
			} else {
				m.inOrder(name, meanwhile(m, first)...)
			}
			if m.soon(); len(m.claims()) > 0 || m.Ready(m.job) > 0 {
				t.Errorf("%d still wait", m.Ready(m.job))
			}
			if problems, _ := m.Verified(ofTheWeek); len(problems) > 0 {
				t.Errorf("verify: %q", problems)
			}
		})
	}
}

// A missed slot that waits says for what. A run by hand waits for none of them.
func TestWhatAMissedSlotWaitsFor(t *testing.T) {
	m := missFive(t)
	m.next("the first")
	byHand := m.Trigger("job").ID
	for run, want := range map[uuid.UUID]string{domain.SlotRunID(m.job, m.slots[1]): "gate", byHand: ""} {
		w, err := m.Runs.RunWaitsFor(t.Context(), m.Tenant, run)
		if err != nil || (w != nil) != (want != "") || w != nil && w.What != want {
			t.Errorf("it waits for %+v, want %q; %v", w, want, err)
		}
	}
	if says := m.Explained("job", m.slots[1]).Text; !strings.Contains(says, "another run of the job") {
		t.Errorf("explain says %q", says)
	}
	if a := m.One(domain.Batch{Runs: m.claims()}); a.RunID != byHand {
		t.Errorf("%s begins, and not the run by hand", a.Trigger)
	}
}

// Of a long outage a hundred slots at most wait as runs. The others stay slots until there is room.
func TestOnlySoManyMissedSlotsWait(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Every(time.Minute), Missed(jobspec.MissedFireAll))
	c.SetNext(job.ID, c.Clock().Truncate(time.Minute).Add(-5*time.Hour))
	for range 20 {
		c.Claim(10, true)
	}
	if n := c.Ready(job.ID); n != 100 {
		t.Errorf("%d wait", n)
	}
	c.WantCount(0, "are skipped", `SELECT count(*) FROM punctual.runs WHERE status = 'skipped'`)
}
