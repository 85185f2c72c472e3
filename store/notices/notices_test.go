package notices_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// untold describes the notices that are still to be sent, in the order of writing.
func untold(c Fixture) []string {
	c.T.Helper()
	return Column[string](c, `
		SELECT concat_ws(' ', n.event, n.slots, n.reason, n.error)
		FROM punctual.notices n
		LEFT JOIN punctual.runs r ON r.id = n.run_id AND r.job_id = n.job_id
			AND r.scheduled_for = n.scheduled_for
		ORDER BY n.id`)
}

func wantNotices(c Fixture, want ...string) {
	c.T.Helper()
	if got := untold(c); !slices.Equal(got, want) {
		c.T.Errorf("notices %q, want %q", got, want)
	}
}

func TestWhatHappensIsNoted(t *testing.T) {
	t.Parallel()
	const first, death = "failing http_5xx 503 Service Unavailable", "dead http_5xx 503 Service Unavailable"
	t.Run("a death", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("job", Everything)
		c.Finish(Failed(a))
		wantNotices(c.Fixture, first)
		c.Finish(Buried(c.Again()))
		wantNotices(c.Fixture, first, death)
	})
	t.Run("a death after expiry, and nothing when a run expires unsent", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("job", Everything)
		b := c.Manual("other", Everything)
		c.Finish(Failed(a), Expired(b))
		c.Finish(Expired(c.Again()))
		wantNotices(c.Fixture, first, "dead expired")
	})
	t.Run("a death by the loss of three replicas", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("job", Never, Everything)
		c.Trigger("job")
		for range 3 {
			replica := uuid.New()
			c.ClaimAll(replica)
			c.Lose(replica)
			c.Recover()
		}
		const lost = "the replica that made this attempt vanished; whether the target got the request is not known"
		wantNotices(c, "failing lost "+lost, "dead poison "+lost)
	})
	t.Run("no death of a run that was cancelled meanwhile", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("job", Everything)
		c.Cancel(a.RunID)
		c.Finish(Buried(a))
		wantNotices(c.Fixture)
	})
	t.Run("the first success after deaths", func(t *testing.T) {
		c := NewReplica(t)
		a := c.Manual("job", Everything)
		c.Finish(Succeeded(a))
		c.Dies("job")
		c.Dies("job")
		c.WellAgain("job")
		c.WellAgain("job")
		wantNotices(c.Fixture, first, death, death, "recovered")
		c.Dies("job")
		c.WellAgain("job")
		wantNotices(c.Fixture, first, death, death, "recovered", first, death, "recovered")
	})
	t.Run("deaths and successes that are written together, by when they ended", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("job", Never, Everything)
		run := func(end Ending, after time.Duration) domain.Outcome {
			o := end(c.Begun("job"))
			o.FinishedAt = o.FinishedAt.Add(after)
			return o
		}
		all := []string{first, death, "recovered"}
		c.Finish(run(Succeeded, time.Minute), run(Buried, time.Second))
		wantNotices(c.Fixture, all...)
		c.Finish(run(Succeeded, time.Minute), run(Buried, time.Second)) // the second time, the job has its row in notified
		wantNotices(c.Fixture, slices.Repeat(all, 2)...)
		c.Finish(run(Buried, time.Minute), run(Succeeded, time.Second))
		wantNotices(c.Fixture, append(slices.Repeat(all, 2), first, death)...)
		c.Finish(run(Succeeded, 2*time.Minute))
		wantNotices(c.Fixture, slices.Repeat(all, 3)...)
	})
	t.Run("slots that are missed", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", HalfPast, Missed(jobspec.MissedSkip), Everything)
		c.SlotAgo(job.ID, 5*time.Hour)
		c.Claim(10, true)
		wantNotices(c.Fixture, "missed 6 missed")
	})
	t.Run("the late run that catches up, and what it stands for", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", HalfPast, Everything)
		c.SlotAgo(job.ID, 5*time.Hour)
		c.One(c.Claim(10, true))
		wantNotices(c.Fixture, "late", "missed 5 missed")
	})
	t.Run("slots that an edit settles", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", HalfPast, Everything)
		c.SlotAgo(job.ID, 5*time.Hour)
		c.Edit("job", Every(2*time.Hour))
		wantNotices(c.Fixture, "late", "missed 5 missed")
	})
	t.Run("no skip for another reason", func(t *testing.T) {
		c := NewReplica(t)
		job, slot := c.DueNow("job", Forbid, Everything)
		c.One(c.Claim(10, false))
		c.SetNext(job.ID, slot.Add(-time.Second))
		c.Claim(10, false)
		if got := c.HistoryOf(job.ID); len(got) != 2 {
			t.Fatalf("history %q", got)
		}
		wantNotices(c.Fixture)
	})
	t.Run("no run of a slot that had its run already", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", HalfPast, Everything)
		slot := c.SlotAgo(job.ID, 5*time.Hour)
		c.Exec(`SELECT punctual.create_partitions(current_date - 1, current_date)`)
		c.RanAt(job.ID, domain.SlotRunID(job.ID, slot.Add(5*time.Hour)), slot.Add(5*time.Hour))
		c.Claim(10, true)
		wantNotices(c.Fixture, "missed 5 missed")
	})
	t.Run("nothing for a job that does not ask for it", func(t *testing.T) {
		c := NewReplica(t)
		for name, option := range map[string]Option{
			"silent": Every(time.Hour),
			"late":   Notify(Hook, jobspec.EventLate), "dead": Notify(Hook, jobspec.EventDead),
		} {
			job := c.Create(name, HalfPast, Missed(jobspec.MissedSkip), option)
			c.SlotAgo(job.ID, 5*time.Hour)
			c.Claim(10, true)
			if name != "dead" {
				c.Dies(name)
			}
			c.WellAgain(name)
		}
		wantNotices(c.Fixture)
		c.WantCount(0, "jobs have a row all the same", `SELECT count(*) FROM punctual.notified`)
	})
}

// When the answer to a commit is lost, the finisher writes the same outcomes again.
func TestOutcomesWrittenTwiceAreNotedOnce(t *testing.T) {
	c := NewReplica(t)
	dead := Buried(c.Manual("job", Everything))
	c.Finish(dead)
	if n := c.Finish(dead); n != 1 {
		t.Fatalf("%d superseded", n)
	}
	const first, death = "failing http_5xx 503 Service Unavailable", "dead http_5xx 503 Service Unavailable"
	wantNotices(c.Fixture, first, death)
	ok := Succeeded(c.Begun("job"))
	c.Finish(ok)
	again := Buried(c.Begun("job"))
	c.Finish(again)
	c.Finish(ok, dead, again)
	wantNotices(c.Fixture, first, death, "recovered", first, death)
	c.WantCount(1, "an outcome that was written before says that the job is well",
		`SELECT count(*) FROM punctual.notified WHERE failures = 1`)
}
