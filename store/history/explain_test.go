package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/history"
	"punctual/store/pg"
)

// pausedBefore pauses a job from just before its second slot on.
func pausedBefore(c Replica, job uuid.UUID, slots []time.Time) {
	c.T.Helper()
	c.PauseWith(job.String(), "the warehouse moves", nil)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1 AND version = 2`,
		job, slots[1].Add(-time.Minute))
	c.SetNext(job, slots[1])
	c.Exec(`DELETE FROM punctual.runs WHERE job_id = $1 AND scheduled_for >= $2`, job, slots[1])
}

// The backfill that explain names reaches beyond the last of the slots, as its end is not included.
func TestExplainNamesTheBackfillThatMakesUpForAPause(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a")
	pausedBefore(c, job, slots)
	c.Resumed(job.String())
	want := fmt.Sprintf("A backfill from %s to %s makes up for it.", pg.Stamp(slots[1]),
		pg.Stamp(slots[4].Add(time.Second)))
	if e := c.Explained("a", slots[2]); !strings.Contains(e.Text, want) {
		t.Errorf("%q does not say %q", e.Text, want)
	}
}

func TestExplainHasAWordForEverything(t *testing.T) {
	t.Parallel()
	blocker := uuid.MustParse("019ada4e-9c3b-7d52-a1c8-5be0f7d96a34")
	type planted func(c Replica, job uuid.UUID, slots []time.Time) (at time.Time)
	set := func(columns string, args ...any) planted {
		return func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.Exec(`UPDATE punctual.runs SET `+columns+` WHERE id = $1`,
				append([]any{domain.SlotRunID(job, slots[1])}, args...)...)
			return slots[1]
		}
	}
	instead := func(plant func(c Replica, job uuid.UUID, slots []time.Time)) planted {
		return func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.Exec(`DELETE FROM punctual.runs WHERE id = ANY($1::uuid[])`,
				[]uuid.UUID{domain.SlotRunID(job, slots[1]), domain.SlotRunID(job, slots[2])})
			plant(c, job, slots)
			return slots[1]
		}
	}
	skipped := func(reason string) planted {
		return instead(func(c Replica, job uuid.UUID, slots []time.Time) {
			c.SkippedAt(job, slots[1], slots[2], 2)
			c.Exec(`UPDATE punctual.runs SET reason = $1, blocked_by = $2 WHERE skipped_first IS NOT NULL`, reason, blocker)
		})
	}
	for _, test := range []struct {
		name    string
		plant   planted
		outcome history.Outcome
		slot    bool
		says    []string
	}{
		{
			"a run that succeeded", set("attempt = 2"), history.OutcomeSucceeded, true,
			[]string{"ran under version 1", "after 2 attempts"},
		},
		{"a late one", set("late = true"), history.OutcomeSucceeded, true, []string{"late, after the job's tolerance"}},
		{
			"a dead run", set("status = 'dead', reason = 'http_5xx', error = 'the target answered 503'"), history.OutcomeDead, true,
			[]string{"http_5xx (the target answered 503)"},
		},
		{"a cancelled run", set("status = 'cancelled', reason = 'replaced'"), history.OutcomeCancelled, true, []string{"replaced"}},
		{"a run that waits", set("status = 'pending', finished_at = NULL"), history.OutcomeInProgress, true, []string{"pending"}},
		{
			"a run that is put off",
			set("status = 'pending', finished_at = NULL, " +
				"error = 'waiting: the circuit breaker is open', next_attempt_at = now()"),
			history.OutcomeInProgress, true,
			[]string{"pending, waiting: the circuit breaker is open; it is tried again at"},
		},
		{
			"a run that is tried again", set("status = 'retrying', finished_at = NULL, next_attempt_at = now()"),
			history.OutcomeInProgress, true,
			[]string{"retrying after 1 attempt;"},
		},
		{
			"a run that is sent", set("status = 'running', fence = 1, finished_at = NULL, started_at = now()"),
			history.OutcomeInProgress, true,
			[]string{"attempt 1"},
		},
		{
			"a run whose target works on",
			set("status = 'running', fence = 1, finished_at = NULL, started_at = now(), accepted_at = now()"),
			history.OutcomeInProgress, true,
			[]string{"accepted attempt 1", "and is still working"},
		},
		{
			"a run that was never sent", set("status = 'skipped', reason = 'expired'"), history.OutcomeSkipped, true,
			[]string{"expires_after"},
		},
		{"a missed slot", skipped("missed"), history.OutcomeSkipped, true, []string{"was missed", "one of 2 from"}},
		{"an overlap", skipped("overlap"), history.OutcomeSkipped, true, []string{blocker.String()}},
		{"a slot skipped with its job", skipped("job_deleted"), history.OutcomeSkipped, true, []string{"the job was deleted"}},
		{"a slot in a pause that is over", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			pausedBefore(c, job, slots)
			c.Resumed(job.String())
			return slots[1]
		}, history.OutcomeSkipped, true, []string{
			"while the job was paused from", "(the warehouse moves)", "A backfill from ", " makes up for it.",
		}},
		{"a slot in a pause that lasts", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			pausedBefore(c, job, slots)
			return slots[1]
		}, history.OutcomePaused, true, []string{"paused since", "(the warehouse moves)", "when it is resumed"}},
		{"a slot that comes in a pause", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			pausedBefore(c, job, slots)
			return slots[4].Add(time.Hour)
		}, history.OutcomePaused, true, []string{"unless it is resumed"}},
		{"a slot nobody claims", instead(func(c Replica, job uuid.UUID, slots []time.Time) {
			c.SetNext(job, slots[1])
		}), history.OutcomeWaiting, true, []string{"has been due since"}},
		{
			"a slot to come", func(_ Replica, _ uuid.UUID, slots []time.Time) time.Time { return slots[4].Add(time.Hour) },
			history.OutcomeUpcoming, true,
			[]string{"is due at"},
		},
		{
			"between slots", func(_ Replica, _ uuid.UUID, slots []time.Time) time.Time { return slots[1].Add(time.Minute) },
			history.OutcomeNoSlot, false,
			[]string{"no slot at that instant under version 1 (every 1h", "the nearest slots are"},
		},
		{
			"before the job", func(_ Replica, _ uuid.UUID, slots []time.Time) time.Time { return slots[0].Add(-time.Hour) },
			history.OutcomeBeforeCreated, false,
			[]string{"did not exist yet", "created at"},
		},
		{"after the job", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.DeleteJob(job.String())
			return slots[4].Add(time.Hour)
		}, history.OutcomeDeleted, false, []string{"deleted at"}},
		{"after the last slot", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.Exec(`UPDATE punctual.job_versions
				SET definition = jsonb_set(definition::jsonb, '{schedule,ends_at}', to_jsonb($2::text))::json
				WHERE job_id = $1`, job, slots[4].Format(time.RFC3339))
			c.Complete(job)
			return slots[4].Add(time.Hour)
		}, history.OutcomeCompleted, false, []string{"had completed at"}},
		{"a skipped slot that was backfilled", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, slots[2]))
			c.SkippedAt(job, slots[2], slots[2], 1)
			return slots[2]
		}, history.OutcomeSucceeded, true, []string{
			"ran in a backfill of 20", "under version 1 and succeeded", "Before, it had been skipped: missed.",
		}},
		{"a backfilled slot from before the job", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			at := slots[0].Add(-2 * time.Hour)
			c.RanAt(job, domain.SlotRunID(job, at), at)
			c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
			return at
		}, history.OutcomeSucceeded, true, []string{"ran in a backfill of 20"}},
		{"before what is kept", func(c Replica, job uuid.UUID, slots []time.Time) time.Time {
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days' WHERE job_id = $1`, job)
			return slots[1].Add(-35 * 24 * time.Hour)
		}, history.OutcomeUnknown, true, []string{"is no longer kept"}},
		{
			"a slot that vanished", instead(func(Replica, uuid.UUID, []time.Time) {}), history.OutcomeUnaccounted, true,
			[]string{"neither a run nor a recorded skip"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			job, slots := c.Lived("a")
			at := test.plant(c, job, slots)
			e := c.Explained(job.String(), at)
			if e.Outcome != test.outcome || (e.Slot != nil) != test.slot || e.Slot != nil && !e.Slot.Equal(at) {
				t.Errorf("%s, slot %v: %s", e.Outcome, e.Slot, e.Text)
			}
			for _, want := range test.says {
				if !strings.Contains(e.Text, want) {
					t.Errorf("%q does not say %q", e.Text, want)
				}
			}
		})
	}
}

func TestExplainNamesTheSlotsAroundAndThePauseInForce(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a")
	e := c.Explained("a", slots[2])
	if *e.Version != 1 || e.Pause != nil || !e.PreviousSlot.Equal(slots[1]) || !e.NextSlot.Equal(slots[3]) {
		t.Errorf("%+v", e)
	}
	if e := c.Explained("a", slots[0]); e.PreviousSlot != nil {
		t.Errorf("before the first slot: %v", e.PreviousSlot)
	}
	until := time.Now().Add(time.Hour)
	c.PauseWith("a", "why", &until)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1 AND version = 2`,
		job, slots[3].Add(time.Minute))
	if p := c.Explained("a", slots[4]).Pause; p == nil || p.Note != "why" || p.Until == nil || p.Ended != nil ||
		!p.Since.Equal(slots[3].Add(time.Minute)) {
		t.Errorf("pause %+v", p)
	}
	if p := c.Explained("a", slots[3]).Pause; p != nil {
		t.Errorf("before the pause: %+v", p)
	}
	if p := c.Explained("a", until.Add(time.Minute)).Pause; p != nil {
		t.Errorf("after the end that it will have: %+v", p)
	}
	c.PauseWith("a", "why still", &until)
	if p := c.Explained("a", until.Add(-time.Minute)).Pause; p == nil || p.Note != "why still" ||
		!p.Since.Equal(slots[3].Add(time.Minute)) {
		t.Errorf("paused again: %+v", p)
	}
	c.Resumed("a")
	if p := c.Explained("a", slots[4]).Pause; p == nil || p.Ended == nil || p.Until != nil {
		t.Errorf("after the pause: %+v", p)
	}
	for _, ref := range []string{"nobody", uuid.NewString()} {
		_, err := c.History.ExplainJob(
			t.Context(), c.Tenant, ref, func(*time.Location) (time.Time, error) { return slots[0], nil },
		)
		WantError(t, err, store.ErrNotFound)
	}
	_, err := c.History.ExplainJob(t.Context(), c.Tenant+1, job.String(),
		func(*time.Location) (time.Time, error) { return slots[0], nil })
	WantError(t, err, store.ErrNotFound)
}

func TestExplainKnowsWhenAForgottenJobWasCompleted(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("job", Delay(time.Hour))
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '9 days' WHERE job_id = $1`, job.ID)
	c.Complete(job.ID)
	c.Exec(`UPDATE punctual.completions SET look_at = now(), completed_at = now() - interval '8 days'`)
	if n, _, err := c.Jobs.ForgetCompletedJobs(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d forgotten, %v", n, err)
	}
	if e := c.Explained(job.ID.String(), time.Now().Add(-24*time.Hour)); e.Outcome != history.OutcomeDeleted {
		t.Errorf("a day ago: %s: %s", e.Outcome, e.Text)
	}
}
