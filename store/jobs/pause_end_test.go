package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// pausedUntil makes a job look paused from 10 hours ago until an instant. All slots from the given one on are
// unsettled, as if no replica had been alive since.
func pausedUntil(c Fixture, job uuid.UUID, until, next time.Time) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.jobs SET created_at = now() - interval '20 hours' WHERE id = $1`, job)
	c.Exec(`UPDATE punctual.job_versions
		SET valid_from = now() - CASE version WHEN 1 THEN interval '20 hours' ELSE interval '10 hours' END
		WHERE job_id = $1`, job)
	c.Exec(`UPDATE punctual.jobs
		SET paused_at = now() - interval '10 hours', updated_at = now() - interval '10 hours', paused_until = $2
		WHERE id = $1`, job, until)
	c.SetNext(job, next)
}

// outage makes an hourly job whose pause of 10 hours ended at its slot of two and a half hours ago, while no replica
// was alive.
func outage(c Fixture, options ...Option) (job uuid.UUID, until time.Time) {
	c.T.Helper()
	job = c.Create("a", options...).ID
	c.Pause("a")
	until = c.SlotAgo(job, 2*time.Hour)
	pausedUntil(c, job, until, until.Add(-3*time.Hour))
	return job, until
}

// wantEnd fails the test unless the version that ended the pause holds from the end of the pause on.
func wantEnd(c Fixture, job uuid.UUID, until time.Time) {
	c.T.Helper()
	c.WantCount(1, "the version that ended the pause does not hold from its end on", `SELECT count(*)
		FROM punctual.job_versions
		WHERE job_id = $1 AND version = 3 AND state = 'active' AND valid_from = $2`, job, until)
}

// wrong lists the violations that verify finds from an instant on.
func wrong(c Fixture, from time.Time) (found []string) {
	c.T.Helper()
	report := func(v history.Violation) error {
		found = append(found, fmt.Sprintf("%s x%d", v.Kind, v.Count))
		return nil
	}
	if _, err := c.History.Verify(
		c.T.Context(), history.VerifyOptions{From: from, To: c.Clock(), Report: report},
	); err != nil {
		c.T.Fatal(err)
	}
	return found
}

// Slots before paused_until count as paused, however late a replica comes. Slots from then on are treated as after any
// outage.
func TestAPauseEndsWhenItSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		job     []Option
		history []string // after the resume and a claim
	}{
		{
			"the newest missed slot runs", nil,
			[]string{"schedule skipped paused x3", "schedule skipped missed x2", "catchup running late"},
		},
		{
			"missed slots are let go",
			[]Option{Missed(jobspec.MissedSkip)},
			[]string{"schedule skipped paused x3", "schedule skipped missed x3"},
		},
		{
			"each missed slot runs",
			[]Option{AllMissed},
			[]string{"schedule skipped paused x3", "catchup running late", "catchup running late", "catchup running late"},
		},
		{
			"a tolerance of hours lets the slots from the end on run as if nothing had been",
			[]Option{Tolerating(5 * time.Hour)},
			[]string{"schedule skipped paused x3", "schedule running", "schedule running", "schedule running"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewFixture(t)
			job, until := outage(c, tt.job...)
			if n := c.ResumeDue(); n != 1 {
				t.Fatalf("%d jobs were resumed", n)
			}
			after := c.Get("a")
			if after.State != domain.JobActive || after.PausedUntil != nil || after.NextScheduledFor == nil ||
				!after.NextScheduledFor.Equal(until) {
				t.Errorf("resumed it is %+v", after)
			}
			wantEnd(c, job, until)
			AsReplica(c).Claim(10, true)
			c.WantHistory(job, tt.history...)
		})
	}
}

func TestAOneShotOfAPauseThatIsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ago     time.Duration // since its slot was due; the pause ended an hour ago
		history []string
	}{
		"fires late when its slot passed meanwhile": {2 * time.Hour, []string{"catchup pending late"}},
		"is due as ever when its slot came later":   {time.Minute / 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("a", Delay(time.Hour)).ID
			c.Pause("a")
			now := c.Clock()
			pausedUntil(c, job, now.Add(-time.Hour), now.Add(-tt.ago))
			c.ResumeDue()
			c.WantHistory(job, tt.history...)
			if tt.history == nil && (c.Get("a").State != domain.JobActive || c.Get("a").NextRunAt == nil) {
				t.Errorf("it is %+v", c.Get("a"))
			}
		})
	}
}

// 1,500 pauses end at one instant. Slots before it are `paused`, others ordinary.
//
//prove:data
func TestManyPausesEndAtOneInstant(t *testing.T) {
	c := NewFixture(t)
	var list []jobspec.Definition
	for i := range 1500 {
		list = append(list, Definition(fmt.Sprint("j", i)))
	}
	for chunk := range slices.Chunk(list, 500) {
		if _, err := c.CreateMany(jobs.ConflictSkip, chunk...); err != nil {
			t.Fatal(err)
		}
	}
	slot := Value[time.Time](c, `SELECT min(scheduled_for) - interval '3 hours' FROM punctual.schedules`)
	c.Exec(`UPDATE punctual.jobs
		SET state = 'paused', paused_at = now() - interval '10 hours',
			created_at = now() - interval '20 hours', updated_at = now() - interval '10 hours', paused_until = $1`, slot)
	c.Exec(`UPDATE punctual.job_versions SET state = 'paused', valid_from = now() - interval '10 hours'`)
	c.Exec(`UPDATE punctual.schedules SET enabled = false, scheduled_for = $1, next_run_at = $1`, slot.Add(-time.Hour))
	began := time.Now()
	if n := c.ResumeDue(); n != 1500 {
		t.Errorf("%d were resumed at once", n)
	}
	t.Logf("1,500 jobs were resumed in %s", time.Since(began))
	c.WantCount(1500, "stand at the slot with which the pause ended",
		`SELECT count(*) FROM punctual.schedules WHERE enabled AND scheduled_for = $1`, slot)
	c.WantCount(1500, "have recorded the slot that passed", `SELECT count(*)
		FROM punctual.runs
		WHERE reason = 'paused' AND skipped_last < $1 AND skipped_count = 1`, slot)
}

// A job whose pause is over counts as active for every change, even if no replica has resumed it yet.
func TestAPauseThatIsOverIsOverForWhoeverChangesTheJob(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(c Fixture) error
		history []string
	}{
		"pausing it again": {
			func(c Fixture) error { c.Pause("a"); return nil },
			[]string{"schedule skipped paused x3", "schedule skipped missed x2", "catchup pending late"},
		},
		"resuming it": {func(c Fixture) error { c.Resumed("a"); return nil }, []string{"schedule skipped paused x3"}},
		"an edit of its schedule": {
			func(c Fixture) error { c.Edit("a", Every(2*time.Hour)); return nil },
			[]string{"schedule skipped paused x3", "schedule skipped missed x2", "catchup pending late"},
		},
		"a batch": {func(c Fixture) error {
			_, err := c.CreateMany(jobs.ConflictReplace, Definition("a", Every(2*time.Hour)))
			return err
		}, []string{"schedule skipped paused x3", "schedule skipped missed x2", "catchup pending late"}},
		"its end": {
			func(c Fixture) error { return c.Jobs.DeleteJob(c.T.Context(), c.Tenant, "a", nil, false) },
			[]string{"schedule skipped paused x3", "schedule skipped job_deleted x3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewFixture(t)
			job, until := outage(c)
			Must(t, tt.change(c))
			c.WantHistory(job, tt.history...)
			wantEnd(c, job, until)
			c.WantCount(1, "the end of the pause is not on record as nobody's deed", `SELECT count(*)
				FROM punctual.audit_log
				WHERE job_id = $1 AND action = 'job.resume' AND actor_kind = 'system'
					AND at = $2`, job, until)
			if found := wrong(c, until.Add(-3*time.Hour)); name != "resuming it" && len(found) > 0 {
				t.Errorf("verify finds %q", found)
			}
		})
	}
}

// A pause ends without a replica. `verify`, `explain` and the views know what its slots become.
//
//prove:data
func TestAPauseThatIsOverAndNobodyAlive(t *testing.T) {
	c := NewFixture(t)
	job, until := outage(c)
	check := func(at time.Time, want string) {
		t.Helper()
		if got := c.SaysOf("a", at); !strings.Contains(got, want) {
			t.Errorf("explain at %s says %q, want %q", at, got, want)
		}
	}
	check(until.Add(-time.Hour), "paused: The slot passed while the job was paused")
	check(until, "waiting: The slot has been due since "+pg.Stamp(until))
	check(until.Add(time.Hour), "waiting: The slot has been due since ")
	check(until.Add(4*time.Hour), "upcoming: ")
	if found := wrong(c, until.Add(-3*time.Hour)); !slices.Equal(found, []string{"overdue x6"}) {
		t.Errorf("verify finds %q", found)
	}
	if n := c.Count(`SELECT count(*) FROM punctual.overdue WHERE job_id = $1 AND what = 'slot' AND due_at = $2`,
		job, until); n != 1 {
		t.Errorf("overdue has %d rows of it", n)
	}
	c.WantCount(1, "job_status has it in another state",
		`SELECT count(*) FROM punctual.job_status WHERE id = $1 AND state = 'active'`, job)

	c.ResumeDue()
	check(until.Add(-time.Hour), "skipped: The slot was skipped because it passed while the job was paused from ")
	check(until, "waiting: The slot has been due since "+pg.Stamp(until))
	AsReplica(c).Claim(10, true)
	check(until, "skipped: The slot was missed")
	if found := wrong(c, until.Add(-3*time.Hour)); len(found) > 0 {
		t.Errorf("after the claim verify finds %q", found)
	}
}

func TestASlotAfterTheEndOfAPauseIsStillToCome(t *testing.T) {
	c := NewFixture(t)
	job := c.Create("a").ID
	c.Pause("a")
	next, _ := c.Next(job)
	until := next.Add(time.Hour)
	c.PauseWith("a", "", &until)
	if got := c.SaysOf("a", until.Add(-time.Hour)); !strings.HasPrefix(got, "paused: The slot is still to come") {
		t.Errorf("before: %q", got)
	}
	if got := c.SaysOf("a", until); !strings.HasPrefix(
		got, "upcoming: The slot is still to come: it is due at "+pg.Stamp(until),
	) {
		t.Errorf("at the end: %q", got)
	}
	if n, next, err := c.Jobs.ResumeDue(t.Context()); n != 0 || err != nil || next != 0 {
		t.Errorf("%d resumed, the next in %s, %v", n, next, err)
	}
}
