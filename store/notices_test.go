package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

const hook = "https://pager.example/hook"

var everything = notify(hook, domain.Events...)

// notices describes the notices that are still to be sent, in the order of writing.
func (c crud) notices() []string {
	c.t.Helper()
	return column[string](c, `
		SELECT concat_ws(' ', n.event, n.slots, n.reason, n.error)
		FROM punctual.notices n
		LEFT JOIN punctual.runs r ON r.id = n.run_id AND r.job_id = n.job_id
			AND r.scheduled_for = n.scheduled_for
		ORDER BY n.id`)
}

func (c crud) wantNotices(want ...string) {
	c.t.Helper()
	if got := c.notices(); !slices.Equal(got, want) {
		c.t.Errorf("notices %q, want %q", got, want)
	}
}

func TestWhatHappensIsNoted(t *testing.T) {
	const first, death = "failing http_5xx 503 Service Unavailable", "dead http_5xx 503 Service Unavailable"
	t.Run("a death", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("job", everything)
		c.finish(failed(a))
		c.wantNotices(first)
		c.finish(buried(c.again()))
		c.wantNotices(first, death)
	})
	t.Run("a death after expiry, and nothing when a run expires unsent", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("job", everything)
		b := c.manual("other", everything)
		c.finish(failed(a), expired(b))
		c.finish(expired(c.again()))
		c.wantNotices(first, "dead expired")
	})
	t.Run("a death by the loss of three replicas", func(t *testing.T) {
		c := newCRUD(t)
		c.create("job", never, everything)
		c.trigger("job")
		for range 3 {
			replica := uuid.New()
			c.claimAll(replica)
			c.lose(replica)
			c.recover()
		}
		const lost = "the replica that made this attempt vanished; whether the target got the request is not known"
		c.wantNotices("failing lost "+lost, "dead poison "+lost)
	})
	t.Run("no death of a run that was cancelled meanwhile", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("job", everything)
		c.cancel(a.RunID)
		c.finish(buried(a))
		c.wantNotices()
	})
	t.Run("the first success after deaths", func(t *testing.T) {
		c := newClaimer(t)
		a := c.manual("job", everything)
		c.finish(succeeded(a))
		c.dies("job")
		c.dies("job")
		c.wellAgain("job")
		c.wellAgain("job")
		c.wantNotices(first, death, death, "recovered")
		c.dies("job")
		c.wellAgain("job")
		c.wantNotices(first, death, death, "recovered", first, death, "recovered")
	})
	t.Run("deaths and successes that are written together, by when they ended", func(t *testing.T) {
		c := newClaimer(t)
		c.create("job", never, everything)
		run := func(end ending, after time.Duration) domain.Outcome {
			o := end(c.begun("job"))
			o.FinishedAt = o.FinishedAt.Add(after)
			return o
		}
		all := []string{first, death, "recovered"}
		c.finish(run(succeeded, time.Minute), run(buried, time.Second))
		c.wantNotices(all...)
		c.finish(run(succeeded, time.Minute), run(buried, time.Second)) // the second time, the job has its row in notified
		c.wantNotices(slices.Repeat(all, 2)...)
		c.finish(run(buried, time.Minute), run(succeeded, time.Second))
		c.wantNotices(append(slices.Repeat(all, 2), first, death)...)
		c.finish(run(succeeded, 2*time.Minute))
		c.wantNotices(slices.Repeat(all, 3)...)
	})
	t.Run("slots that are missed", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", halfPast, missed(domain.MissedSkip), everything)
		c.slotAgo(job.ID, 5*time.Hour)
		c.claim(10, true)
		c.wantNotices("missed 6 missed")
	})
	t.Run("the late run that catches up, and what it stands for", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", halfPast, everything)
		c.slotAgo(job.ID, 5*time.Hour)
		c.one(c.claim(10, true))
		c.wantNotices("late", "missed 5 missed")
	})
	t.Run("slots that an edit settles", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", halfPast, everything)
		c.slotAgo(job.ID, 5*time.Hour)
		c.edit("job", every(2*time.Hour))
		c.wantNotices("late", "missed 5 missed")
	})
	t.Run("no skip for another reason", func(t *testing.T) {
		c := newClaimer(t)
		job, slot := c.dueNow("job", forbid, everything)
		c.one(c.claim(10, false))
		c.setNext(job.ID, slot.Add(-time.Second))
		c.claim(10, false)
		if got := c.history(job.ID); len(got) != 2 {
			t.Fatalf("history %q", got)
		}
		c.wantNotices()
	})
	t.Run("no run of a slot that had its run already", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", halfPast, everything)
		slot := c.slotAgo(job.ID, 5*time.Hour)
		c.exec(`SELECT punctual.create_partitions(current_date - 1, current_date)`)
		c.ranAt(job.ID, domain.SlotRunID(job.ID, slot.Add(5*time.Hour)), slot.Add(5*time.Hour))
		c.claim(10, true)
		c.wantNotices("missed 5 missed")
	})
	t.Run("nothing for a job that does not ask for it", func(t *testing.T) {
		c := newClaimer(t)
		for name, option := range map[string]option{
			"silent": every(time.Hour),
			"late":   notify(hook, domain.EventLate), "dead": notify(hook, domain.EventDead),
		} {
			job := c.create(name, halfPast, missed(domain.MissedSkip), option)
			c.slotAgo(job.ID, 5*time.Hour)
			c.claim(10, true)
			if name != "dead" {
				c.dies(name)
			}
			c.wellAgain(name)
		}
		c.wantNotices()
		c.wantCount(0, "jobs have a row all the same", `SELECT count(*) FROM punctual.notified`)
	})
}

// When the answer to a commit is lost, the finisher writes the same outcomes again.
func TestOutcomesWrittenTwiceAreNotedOnce(t *testing.T) {
	c := newClaimer(t)
	dead := buried(c.manual("job", everything))
	c.finish(dead)
	if n := c.finish(dead); n != 1 {
		t.Fatalf("%d superseded", n)
	}
	const first, death = "failing http_5xx 503 Service Unavailable", "dead http_5xx 503 Service Unavailable"
	c.wantNotices(first, death)
	ok := succeeded(c.begun("job"))
	c.finish(ok)
	again := buried(c.begun("job"))
	c.finish(again)
	c.finish(ok, dead, again)
	c.wantNotices(first, death, "recovered", first, death)
	c.wantCount(1, "an outcome that was written before says that the job is well",
		`SELECT count(*) FROM punctual.notified WHERE failures = 1`)
}
