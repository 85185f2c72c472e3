package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/jobs"
)

// verified returns the result of verify for the last 48 hours: a line per violation, and the summary.
func (c crud) verified(change ...func(*history.VerifyOptions)) ([]string, history.VerifySummary) {
	c.t.Helper()
	lines := []string{}
	now := time.Now()
	o := history.VerifyOptions{From: now.Add(-48 * time.Hour), To: now.Add(time.Hour)}
	o.Report = func(v history.Violation) error {
		line := fmt.Sprintf("%s %s", v.Kind, v.Job)
		if v.Kind == history.ViolationOverdue || v.Kind == history.ViolationCount || v.Kind == history.ViolationDouble {
			line += fmt.Sprintf(" x%d", v.Count)
		}
		lines = append(lines, line)
		return nil
	}
	for _, f := range change {
		f(&o)
	}
	summary, err := c.History.Verify(c.t.Context(), o)
	must(c.t, err)
	if summary.Violations != len(lines) {
		c.t.Errorf("%d violations in the summary, %d reported", summary.Violations, len(lines))
	}
	return lines, summary
}

func (c crud) partitionsBack(days int) {
	c.t.Helper()
	c.exec(`SELECT punctual.create_partitions(
		(now() AT TIME ZONE 'UTC')::date - $1::int, (now() AT TIME ZONE 'UTC')::date)`, days)
}

// lived writes an hourly job of five hours ago and returns its five slots, whose runs all succeeded.
func (c claimer) lived(name string, options ...option) (job uuid.UUID, slots []time.Time) {
	c.t.Helper()
	c.partitionsBack(2)
	made := c.create(name, append([]option{halfPast}, options...)...)
	for n := range 5 {
		at := made.NextScheduledFor.Add(time.Duration(n-5) * time.Hour)
		slots = append(slots, at)
		c.ranAt(made.ID, domain.SlotRunID(made.ID, at), at)
	}
	c.exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1`, made.ID, slots[0].Add(-59*time.Minute))
	return made.ID, slots
}

func (c crud) ranAt(job, id uuid.UUID, slot time.Time) {
	c.t.Helper()
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			attempt, status, trigger)
		VALUES ($1, $2, $3, $3, now(), $4, 1, 5, 1, 'succeeded', 'schedule')`, id, job, slot, c.tenant)
}

func (c crud) skippedAt(job uuid.UUID, first, last time.Time, count any) {
	c.t.Helper()
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			skipped_count, tenant, job_version, lane, status, reason, trigger)
		VALUES ($1, $2, $4, $4, now(), $3, $4, $5, $6, 1, 5, 'skipped', 'missed', 'schedule')`,
		domain.NewRunID(time.Now()), job, first, last, count, c.tenant)
}

func TestVerifyNoticesEveryKindOfViolation(t *testing.T) {
	remove := func(c claimer, job uuid.UUID, slots ...time.Time) {
		for _, at := range slots {
			c.exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, at))
		}
	}
	for _, test := range []struct {
		name  string
		plant func(c claimer, job uuid.UUID, slots []time.Time)
		want  []string
	}{
		{"nothing is wrong", func(claimer, uuid.UUID, []time.Time) {}, []string{}},
		{
			"a slot has neither run nor skip", func(c claimer, job uuid.UUID, slots []time.Time) { remove(c, job, slots[2]) },
			[]string{"missing a"},
		},
		{
			"the last slot has neither", func(c claimer, job uuid.UUID, slots []time.Time) { remove(c, job, slots[4]) },
			[]string{"missing a"},
		},
		{
			"all slots have neither", func(c claimer, job uuid.UUID, slots []time.Time) { remove(c, job, slots...) },
			slices.Repeat([]string{"missing a"}, 5),
		},
		{"a slot ran under two ids", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.ranAt(job, domain.NewRunID(time.Now()), slots[1])
		}, []string{"double a x2"}},
		{
			"a slot ran and was skipped",
			func(c claimer, job uuid.UUID, slots []time.Time) { c.skippedAt(job, slots[1], slots[1], 1) },
			[]string{"double a x2"},
		},
		{
			"three slots ran and were skipped",
			func(c claimer, job uuid.UUID, slots []time.Time) { c.skippedAt(job, slots[1], slots[3], 3) },
			slices.Repeat([]string{"double a x2"}, 3),
		},
		{"two skips overlap", func(c claimer, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:4]...)
			c.skippedAt(job, slots[0], slots[2], 3)
			c.skippedAt(job, slots[2], slots[3], 2)
		}, []string{"overlap a"}},
		{"a skip stands for one slot more than there are", func(c claimer, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:3]...)
			c.skippedAt(job, slots[0], slots[2], 4)
		}, []string{"count a x4"}},
		{"a skip says it stands for more than are counted", func(c claimer, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:3]...)
			c.skippedAt(job, slots[0], slots[2], nil)
		}, []string{"count a x0"}},
		{"a run of no slot", func(c claimer, job uuid.UUID, slots []time.Time) {
			at := slots[1].Add(time.Minute)
			c.ranAt(job, domain.SlotRunID(job, at), at)
		}, []string{"phantom a"}},
		{"a run of a slot before the job", func(c claimer, job uuid.UUID, slots []time.Time) {
			at := slots[0].Add(-time.Hour)
			c.ranAt(job, domain.SlotRunID(job, at), at)
		}, []string{"phantom a"}},
		{"a skip of no slot", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.skippedAt(job, slots[1].Add(time.Minute), slots[1].Add(2*time.Minute), 2)
		}, []string{"phantom a"}},
		{"a run of no job", func(c claimer, _ uuid.UUID, slots []time.Time) {
			c.ranAt(uuid.Max, domain.SlotRunID(uuid.Max, slots[1]), slots[1])
			c.ranAt(uuid.UUID{15: 1}, domain.SlotRunID(uuid.UUID{15: 1}, slots[1]), slots[1])
		}, []string{"phantom ", "phantom "}},
		{
			"a run that nobody holds", func(c claimer, job uuid.UUID, slots []time.Time) { c.unend(job, slots[1], "running") },
			[]string{"unended a"},
		},
		{
			"a retry that waits nowhere",
			func(c claimer, job uuid.UUID, slots []time.Time) { c.unend(job, slots[1], "retrying") },
			[]string{"unended a"},
		},
		{"a manual run that waits nowhere", func(c claimer, _ uuid.UUID, _ []time.Time) {
			run := c.trigger("a")
			c.exec(`DELETE FROM punctual.ready`)
			c.exec(`UPDATE punctual.runs SET created_at = now() - interval '1 hour' WHERE id = $1`, run.ID)
		}, []string{"unended a"}},
		{"a run under the claim of a replica that is gone", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.unend(job, slots[1], "running")
			c.exec(`INSERT INTO punctual.claims (id, replica, claimed_at, run_ids)
				VALUES (gen_random_uuid(), gen_random_uuid(), now() - interval '1 hour', ARRAY[$1::uuid])`,
				domain.SlotRunID(job, slots[1]))
		}, []string{"unended a"}},
		{"a run under the claim of a replica that lives", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.unend(job, slots[1], "running")
			c.exec(`INSERT INTO punctual.claims (id, replica, claimed_at, run_ids)
				VALUES (gen_random_uuid(), $2, now() - interval '1 hour', ARRAY[$1::uuid])`,
				domain.SlotRunID(job, slots[1]), c.replica)
		}, []string{}},
		{"a run that waits in ready", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.unend(job, slots[1], "retrying")
			c.exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
				VALUES ($1, $2, now() - interval '1 hour', $3, 5)`, domain.SlotRunID(job, slots[1]), job, c.tenant)
		}, []string{}},
		{"slots are due and nobody claims them", func(c claimer, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[3:]...)
			c.setNext(job, slots[3])
		}, []string{"overdue a x2"}},
		{
			"the next slot is beyond what is accounted for",
			func(c claimer, job uuid.UUID, slots []time.Time) { remove(c, job, slots[3:]...) },
			slices.Repeat([]string{"missing a"}, 2),
		},
		{"a skipped slot was backfilled", func(c claimer, job uuid.UUID, slots []time.Time) {
			c.exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, slots[1]))
			c.skippedAt(job, slots[1], slots[1], 1)
		}, []string{}},
		{"a slot from before the job was backfilled", func(c claimer, job uuid.UUID, slots []time.Time) {
			at := slots[0].Add(-3 * time.Hour)
			c.ranAt(job, domain.SlotRunID(job, at), at)
			c.exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
		}, []string{}},
		{
			"a slot of the schedule before it was edited was backfilled by the new one",
			func(c claimer, job uuid.UUID, slots []time.Time) {
				at := slots[0].Add(-time.Hour + 5*time.Minute)
				c.edit("a", every(5*time.Minute))
				at = at.Truncate(5 * time.Minute)
				c.ranAt(job, domain.SlotRunID(job, at), at)
				c.exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
			},
			[]string{},
		},
		{"what is no slot of any version was backfilled", func(c claimer, job uuid.UUID, slots []time.Time) {
			at := slots[1].Add(time.Minute)
			c.ranAt(job, domain.SlotRunID(job, at), at)
			c.exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
		}, []string{"phantom a"}},
		{"a definition that cannot be read", func(c claimer, job uuid.UUID, _ []time.Time) {
			c.exec(`UPDATE punctual.job_versions SET definition = '{"schedule":{"cron":"rubbish"}}' WHERE job_id = $1`, job)
		}, []string{"unverifiable a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClaimer(t)
			job, slots := c.lived("a")
			test.plant(c, job, slots)
			got, _ := c.verified()
			if !slices.Equal(got, test.want) {
				t.Errorf("violations %q, want %q", got, test.want)
			}
		})
	}
}

func (c crud) unend(job uuid.UUID, slot time.Time, status string) {
	c.t.Helper()
	c.exec(`UPDATE punctual.runs
		SET status = $2, finished_at = NULL, fence = 1, created_at = now() - interval '1 hour'
		WHERE id = $1`, domain.SlotRunID(job, slot), status)
}

func TestVerifyLooksAtWhatItIsToldTo(t *testing.T) {
	c := newClaimer(t)
	var same domain.Definition
	halfPast(&same)
	slotsOf := func(d *domain.Definition) { d.Schedule = same.Schedule }
	job, slots := c.lived("a", slotsOf)
	other, _ := c.lived("b", slotsOf)
	for _, id := range []uuid.UUID{job, other} {
		c.exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(id, slots[1]))
	}
	c.deleteJob("b")
	for name, test := range map[string]struct {
		change func(*history.VerifyOptions)
		want   []string
	}{
		"all":               {func(*history.VerifyOptions) {}, []string{"missing a", "missing b"}},
		"a job by its name": {func(o *history.VerifyOptions) { o.Job = "a" }, []string{"missing a"}},
		"a deleted job":     {func(o *history.VerifyOptions) { o.Job = other.String() }, []string{"missing b"}},
		"a tenant":          {func(o *history.VerifyOptions) { o.Tenant = "default" }, []string{"missing a", "missing b"}},
		"before":            {func(o *history.VerifyOptions) { o.To = slots[0] }, []string{}},
		"after":             {func(o *history.VerifyOptions) { o.From = slots[1].Add(1000) }, []string{}},
		"the very slot": {
			func(o *history.VerifyOptions) { o.From, o.To = slots[1], slots[1].Add(1000) },
			[]string{"missing a", "missing b"},
		},
	} {
		if got, _ := c.verified(test.change); !slices.Equal(got, test.want) {
			t.Errorf("%s: violations %q, want %q", name, got, test.want)
		}
	}
	for _, o := range []history.VerifyOptions{
		{Job: "nobody"}, {Job: uuid.NewString()}, {Tenant: "nobody"}, {Tenant: "nobody", Job: "a"},
	} {
		o.From, o.To = slots[0], slots[1]
		_, err := c.History.Verify(t.Context(), o)
		wantError(t, err, ErrNotFound)
	}
	var empty *history.EmptyWindowError
	if _, err := c.History.Verify(t.Context(),
		history.VerifyOptions{From: time.Now().Add(time.Hour), To: time.Now().Add(2 * time.Hour)}); !errors.As(err, &empty) {
		t.Errorf("the future: %v", err)
	}
}

func TestVerifyLeavesOutDaysThatAreNotKept(t *testing.T) {
	c := newClaimer(t)
	job, slots := c.lived("a")
	c.exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days' WHERE job_id = $1`, job)
	c.exec(`SELECT punctual.create_partitions(current_date - 30, current_date - 30)`) // for one old slot
	_, summary := c.verified(func(o *history.VerifyOptions) { o.From = slots[0].Add(-40 * 24 * time.Hour) })
	if want := slots[len(slots)-1].Truncate(24 * time.Hour).Add(-48 * time.Hour); summary.From.Before(want) ||
		summary.From.After(want.Add(24*time.Hour)) {
		t.Errorf("verified from %s, want about %s", summary.From, want)
	}
	if len(summary.Notes) != 1 {
		t.Errorf("notes %q", summary.Notes)
	}
}

func TestVerifySaysThatTheReplicasGoByOtherZoneData(t *testing.T) {
	c := newClaimer(t)
	c.lived("a")
	c.exec(`UPDATE punctual.deployment SET zone_data = '1999z'`)
	if _, summary := c.verified(); len(summary.Notes) != 1 || !strings.Contains(summary.Notes[0], "1999z") {
		t.Errorf("notes %q", summary.Notes)
	}
}

func TestVerifyWalksThroughPagesOfJobs(t *testing.T) {
	c := newClaimer(t)
	c.many(2*history.JobsPerPage, "many", time.Second) // exactly two pages of jobs, each job with a due slot
	pages := 0
	got, summary := c.verified(func(o *history.VerifyOptions) {
		o.Progress = func(history.VerifySummary) { pages++ }
		o.Grace = time.Hour
	})
	if len(got) != 0 || summary.Jobs != 2*history.JobsPerPage || pages != 3 {
		t.Errorf("%d jobs on %d pages: %q", summary.Jobs, pages, got)
	}
}

func TestVerifyNoticesDatedRunsThatAreLeft(t *testing.T) {
	ago := func(c claimer, what string) { // its job and all of its dated runs are from two hours ago
		c.exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '2 hours'`)
		c.exec(`UPDATE punctual.dated SET created_at = now() - interval '2 hours', due_at = now() - interval '1 hour',
			run_id = punctual.run_id_at(now() - interval '1 hour')` + what)
	}
	deleted := func(c claimer) {
		must(t, c.Jobs.DeleteJob(c.t.Context(), c.tenant, "a", nil, false))
		c.exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '1 hour'`)
	}
	for _, test := range []struct {
		name  string
		plant func(c claimer)
		want  []string
	}{
		{"they are pending", func(claimer) {}, []string{}},
		{"they have just been due", func(c claimer) { c.exec(`UPDATE punctual.dated SET due_at = now()`) }, []string{}},
		{"nobody has claimed them", func(c claimer) { ago(c, "") }, []string{"overdue a x2"}},
		{"the job is paused", func(c claimer) { c.pause("a"); ago(c, "") }, []string{}},
		{"the job was resumed just now", func(c claimer) {
			ago(c, "")
			c.exec(`UPDATE punctual.job_versions SET valid_from = now()`)
		}, []string{}},
		{"the tenant is frozen", func(c claimer) {
			ago(c, "")
			c.exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'somebody'`)
		}, []string{}},
		{"they are set aside, but the job is active", func(c claimer) { ago(c, ", lane = -32768") }, []string{"overdue a x2"}},
		{"a chore is about to arm them", func(c claimer) {
			ago(c, ", lane = -32768")
			c.exec(`INSERT INTO punctual.dated_work (job_id, tenant) SELECT id, tenant FROM punctual.jobs`)
		}, []string{}},
		{"a chore is about to remove them", deleted, []string{}},
		{"the chore that removes them has stopped", func(c claimer) {
			deleted(c)
			c.exec(`UPDATE punctual.dated_work SET looked_at = now() - interval '1 hour'`)
		}, []string{"phantom a"}},
		{"no chore removes them", func(c claimer) { deleted(c); c.exec(`DELETE FROM punctual.dated_work`) }, []string{"phantom a"}},
		{"there is no such job", func(c claimer) {
			c.exec(`UPDATE punctual.dated SET job_id = gen_random_uuid() WHERE key = '1'`)
		}, []string{"phantom "}},
		{"they are runs already", func(c claimer) {
			c.exec(`UPDATE punctual.dated SET due_at = now(), run_id = punctual.run_id_at(now()) WHERE key = '1'`)
			c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger,
				finished_at) SELECT run_id, job_id, due_at, due_at, tenant, 1, lane, 'succeeded', 'manual', now()
				FROM punctual.dated WHERE key = '1'`)
		}, []string{"double a x1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClaimer(t)
			c.create("a", never)
			for key := range 2 {
				c.date("a", jobs.DateRequest{Key: fmt.Sprint(key), Delay: time.Hour})
			}
			test.plant(c)
			if got, _ := c.verified(); !slices.Equal(got, test.want) {
				t.Errorf("violations %q, want %q", got, test.want)
			}
		})
	}
}
