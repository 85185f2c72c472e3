package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/history"
	"punctual/store/jobs"
)

func TestVerifyNoticesEveryKindOfViolation(t *testing.T) {
	t.Parallel()
	remove := func(c Replica, job uuid.UUID, slots ...time.Time) {
		for _, at := range slots {
			c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(job, at))
		}
	}
	for _, test := range []struct {
		name  string
		plant func(c Replica, job uuid.UUID, slots []time.Time)
		want  []string
	}{
		{"nothing is wrong", func(Replica, uuid.UUID, []time.Time) {}, []string{}},
		{
			"a slot has neither run nor skip", func(c Replica, job uuid.UUID, slots []time.Time) { remove(c, job, slots[2]) },
			[]string{"missing a"},
		},
		{
			"the last slot has neither", func(c Replica, job uuid.UUID, slots []time.Time) { remove(c, job, slots[4]) },
			[]string{"missing a"},
		},
		{
			"all slots have neither", func(c Replica, job uuid.UUID, slots []time.Time) { remove(c, job, slots...) },
			slices.Repeat([]string{"missing a"}, 5),
		},
		{"a slot ran under two ids", func(c Replica, job uuid.UUID, slots []time.Time) {
			c.RanAt(job, domain.NewRunID(time.Now()), slots[1])
		}, []string{"double a x2"}},
		{
			"a slot ran and was skipped",
			func(c Replica, job uuid.UUID, slots []time.Time) { c.SkippedAt(job, slots[1], slots[1], 1) },
			[]string{"double a x2"},
		},
		{
			"three slots ran and were skipped",
			func(c Replica, job uuid.UUID, slots []time.Time) { c.SkippedAt(job, slots[1], slots[3], 3) },
			slices.Repeat([]string{"double a x2"}, 3),
		},
		{"two skips overlap", func(c Replica, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:4]...)
			c.SkippedAt(job, slots[0], slots[2], 3)
			c.SkippedAt(job, slots[2], slots[3], 2)
		}, []string{"overlap a"}},
		{"a skip stands for one slot more than there are", func(c Replica, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:3]...)
			c.SkippedAt(job, slots[0], slots[2], 4)
		}, []string{"count a x4"}},
		{"a skip says it stands for more than are counted", func(c Replica, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[0:3]...)
			c.SkippedAt(job, slots[0], slots[2], nil)
		}, []string{"count a x0"}},
		{"a run of no slot", func(c Replica, job uuid.UUID, slots []time.Time) {
			at := slots[1].Add(time.Minute)
			c.RanAt(job, domain.SlotRunID(job, at), at)
		}, []string{"phantom a"}},
		{"a run of a slot before the job", func(c Replica, job uuid.UUID, slots []time.Time) {
			at := slots[0].Add(-time.Hour)
			c.RanAt(job, domain.SlotRunID(job, at), at)
		}, []string{"phantom a"}},
		{"a skip of no slot", func(c Replica, job uuid.UUID, slots []time.Time) {
			c.SkippedAt(job, slots[1].Add(time.Minute), slots[1].Add(2*time.Minute), 2)
		}, []string{"phantom a"}},
		{"a run of no job", func(c Replica, _ uuid.UUID, slots []time.Time) {
			c.RanAt(uuid.Max, domain.SlotRunID(uuid.Max, slots[1]), slots[1])
			c.RanAt(uuid.UUID{15: 1}, domain.SlotRunID(uuid.UUID{15: 1}, slots[1]), slots[1])
		}, []string{"phantom ", "phantom "}},
		{
			"a run that nobody holds", func(c Replica, job uuid.UUID, slots []time.Time) { unend(c.Fixture, job, slots[1], "running") },
			[]string{"unended a"},
		},
		{
			"a retry that waits nowhere",
			func(c Replica, job uuid.UUID, slots []time.Time) { unend(c.Fixture, job, slots[1], "retrying") },
			[]string{"unended a"},
		},
		{"a manual run that waits nowhere", func(c Replica, _ uuid.UUID, _ []time.Time) {
			run := c.Trigger("a")
			c.Exec(`DELETE FROM punctual.ready`)
			c.Exec(`UPDATE punctual.runs SET created_at = now() - interval '1 hour' WHERE id = $1`, run.ID)
		}, []string{"unended a"}},
		{"a run under the claim of a replica that is gone", func(c Replica, job uuid.UUID, slots []time.Time) {
			unend(c.Fixture, job, slots[1], "running")
			c.Exec(`INSERT INTO punctual.claims (id, replica, claimed_at, run_ids)
				VALUES (gen_random_uuid(), gen_random_uuid(), now() - interval '1 hour', ARRAY[$1::uuid])`,
				domain.SlotRunID(job, slots[1]))
		}, []string{"unended a"}},
		{"a run under the claim of a replica that lives", func(c Replica, job uuid.UUID, slots []time.Time) {
			unend(c.Fixture, job, slots[1], "running")
			c.Exec(`INSERT INTO punctual.claims (id, replica, claimed_at, run_ids)
				VALUES (gen_random_uuid(), $2, now() - interval '1 hour', ARRAY[$1::uuid])`,
				domain.SlotRunID(job, slots[1]), c.ReplicaID)
		}, []string{}},
		{"a run that waits in ready", func(c Replica, job uuid.UUID, slots []time.Time) {
			unend(c.Fixture, job, slots[1], "retrying")
			c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
				VALUES ($1, $2, now() - interval '1 hour', $3, 5)`, domain.SlotRunID(job, slots[1]), job, c.Tenant)
		}, []string{}},
		{"slots are due and nobody claims them", func(c Replica, job uuid.UUID, slots []time.Time) {
			remove(c, job, slots[3:]...)
			c.SetNext(job, slots[3])
		}, []string{"overdue a x2"}},
		{
			"the next slot is beyond what is accounted for",
			func(c Replica, job uuid.UUID, slots []time.Time) { remove(c, job, slots[3:]...) },
			slices.Repeat([]string{"missing a"}, 2),
		},
		{"a skipped slot was backfilled", func(c Replica, job uuid.UUID, slots []time.Time) {
			c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, slots[1]))
			c.SkippedAt(job, slots[1], slots[1], 1)
		}, []string{}},
		{"a slot from before the job was backfilled", func(c Replica, job uuid.UUID, slots []time.Time) {
			at := slots[0].Add(-3 * time.Hour)
			c.RanAt(job, domain.SlotRunID(job, at), at)
			c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
		}, []string{}},
		{
			"a slot of the schedule before it was edited was backfilled by the new one",
			func(c Replica, job uuid.UUID, slots []time.Time) {
				at := slots[0].Add(-time.Hour + 5*time.Minute)
				c.Edit("a", Every(5*time.Minute))
				at = at.Truncate(5 * time.Minute)
				c.RanAt(job, domain.SlotRunID(job, at), at)
				c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
			},
			[]string{},
		},
		{"what is no slot of any version was backfilled", func(c Replica, job uuid.UUID, slots []time.Time) {
			at := slots[1].Add(time.Minute)
			c.RanAt(job, domain.SlotRunID(job, at), at)
			c.Exec(`UPDATE punctual.runs SET trigger = 'backfill' WHERE id = $1`, domain.SlotRunID(job, at))
		}, []string{"phantom a"}},
		{"a definition that cannot be read", func(c Replica, job uuid.UUID, _ []time.Time) {
			c.Exec(`UPDATE punctual.job_versions SET definition = '{"schedule":{"cron":"rubbish"}}' WHERE job_id = $1`, job)
		}, []string{"unverifiable a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			job, slots := c.Lived("a")
			test.plant(c, job, slots)
			got, _ := c.Verified()
			if !slices.Equal(got, test.want) {
				t.Errorf("violations %q, want %q", got, test.want)
			}
		})
	}
}

func unend(c Fixture, job uuid.UUID, slot time.Time, status string) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.runs
		SET status = $2::text, finished_at = NULL, attempt = CASE $2::text WHEN 'retrying' THEN 0 ELSE 1 END,
			created_at = now() - interval '1 hour'
		WHERE id = $1`, domain.SlotRunID(job, slot), status)
}

func TestVerifyLooksAtWhatItIsToldTo(t *testing.T) {
	c := NewReplica(t)
	var same jobspec.Definition
	HalfPast(&same)
	slotsOf := func(d *jobspec.Definition) { d.Schedule = same.Schedule }
	job, slots := c.Lived("a", slotsOf)
	other, _ := c.Lived("b", slotsOf)
	for _, id := range []uuid.UUID{job, other} {
		c.Exec(`DELETE FROM punctual.runs WHERE id = $1`, domain.SlotRunID(id, slots[1]))
	}
	c.DeleteJob("b")
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
		if got, _ := c.Verified(test.change); !slices.Equal(got, test.want) {
			t.Errorf("%s: violations %q, want %q", name, got, test.want)
		}
	}
	for _, o := range []history.VerifyOptions{
		{Job: "nobody"}, {Job: uuid.NewString()}, {Tenant: "nobody"}, {Tenant: "nobody", Job: "a"},
	} {
		o.From, o.To = slots[0], slots[1]
		_, err := c.History.Verify(t.Context(), o)
		WantError(t, err, store.ErrNotFound)
	}
	var empty *history.EmptyWindowError
	if _, err := c.History.Verify(t.Context(),
		history.VerifyOptions{From: time.Now().Add(time.Hour), To: time.Now().Add(2 * time.Hour)}); !errors.As(err, &empty) {
		t.Errorf("the future: %v", err)
	}
}

func TestVerifyLeavesOutDaysThatAreNotKept(t *testing.T) {
	c := NewReplica(t)
	job, slots := c.Lived("a")
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '40 days' WHERE job_id = $1`, job)
	c.Exec(`SELECT punctual.create_partitions(current_date - 30, current_date - 30)`) // for one old slot
	_, summary := c.Verified(func(o *history.VerifyOptions) { o.From = slots[0].Add(-40 * 24 * time.Hour) })
	if want := slots[len(slots)-1].Truncate(24 * time.Hour).Add(-48 * time.Hour); summary.From.Before(want) ||
		summary.From.After(want.Add(24*time.Hour)) {
		t.Errorf("verified from %s, want about %s", summary.From, want)
	}
	if len(summary.Notes) != 1 {
		t.Errorf("notes %q", summary.Notes)
	}
}

func TestVerifySaysThatTheReplicasGoByOtherZoneData(t *testing.T) {
	c := NewReplica(t)
	c.Lived("a")
	c.Exec(`UPDATE punctual.deployment SET zone_data = '1999z'`)
	if _, summary := c.Verified(); len(summary.Notes) != 1 || !strings.Contains(summary.Notes[0], "1999z") {
		t.Errorf("notes %q", summary.Notes)
	}
}

func TestVerifyWalksThroughPagesOfJobs(t *testing.T) {
	c := NewReplica(t)
	c.Many(2*history.JobsPerPage, "many", time.Second) // exactly two pages of jobs, each job with a due slot
	pages := 0
	got, summary := c.Verified(func(o *history.VerifyOptions) {
		o.Progress = func(history.VerifySummary) { pages++ }
		o.Grace = time.Hour
	})
	if len(got) != 0 || summary.Jobs != 2*history.JobsPerPage || pages != 3 {
		t.Errorf("%d jobs on %d pages: %q", summary.Jobs, pages, got)
	}
}

func TestVerifyNoticesDatedRunsThatAreLeft(t *testing.T) {
	t.Parallel()
	ago := func(c Replica, what string) { // its job and all of its dated runs are from two hours ago
		c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '2 hours'`)
		c.Exec(`UPDATE punctual.dated SET created_at = now() - interval '2 hours', due_at = now() - interval '1 hour',
			run_id = punctual.run_id_at(now() - interval '1 hour')` + what)
	}
	deleted := func(c Replica) {
		Must(t, c.Jobs.DeleteJob(c.T.Context(), c.Tenant, "a", nil, false))
		c.Exec(`UPDATE punctual.jobs SET deleted_at = now() - interval '1 hour'`)
	}
	for _, test := range []struct {
		name  string
		plant func(c Replica)
		want  []string
	}{
		{"they are pending", func(Replica) {}, []string{}},
		{"they have just been due", func(c Replica) { c.Exec(`UPDATE punctual.dated SET due_at = now()`) }, []string{}},
		{"nobody has claimed them", func(c Replica) { ago(c, "") }, []string{"overdue a x2"}},
		{"the job is paused", func(c Replica) { c.Pause("a"); ago(c, "") }, []string{}},
		{"the job was resumed just now", func(c Replica) {
			ago(c, "")
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now()`)
		}, []string{}},
		{"the tenant is frozen", func(c Replica) {
			ago(c, "")
			c.Exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'somebody'`)
		}, []string{}},
		{"they are set aside, but the job is active", func(c Replica) { ago(c, ", waits = 'aside'") }, []string{"overdue a x2"}},
		{"a chore is about to arm them", func(c Replica) {
			ago(c, ", waits = 'aside'")
			c.Exec(`INSERT INTO punctual.dated_work (job_id, tenant) SELECT id, tenant FROM punctual.jobs`)
		}, []string{}},
		{"a chore is about to remove them", deleted, []string{}},
		{"the chore that removes them has stopped", func(c Replica) {
			deleted(c)
			c.Exec(`UPDATE punctual.dated_work SET looked_at = now() - interval '1 hour'`)
		}, []string{"phantom a"}},
		{"no chore removes them", func(c Replica) { deleted(c); c.Exec(`DELETE FROM punctual.dated_work`) }, []string{"phantom a"}},
		{"there is no such job", func(c Replica) {
			c.Exec(`UPDATE punctual.dated SET job_id = gen_random_uuid() WHERE key = '1'`)
		}, []string{"phantom "}},
		{"they are runs already", func(c Replica) {
			c.Exec(`UPDATE punctual.dated SET due_at = now(), run_id = punctual.run_id_at(now()) WHERE key = '1'`)
			c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger,
				finished_at, fence) SELECT run_id, job_id, due_at, due_at, tenant, 1, lane, 'succeeded', 'manual', now(), 1
				FROM punctual.dated WHERE key = '1'`)
		}, []string{"double a x1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			c.Create("a", Never)
			for key := range 2 {
				c.Date("a", jobs.DateRequest{Key: fmt.Sprint(key), Delay: time.Hour})
			}
			test.plant(c)
			if got, _ := c.Verified(); !slices.Equal(got, test.want) {
				t.Errorf("violations %q, want %q", got, test.want)
			}
		})
	}
}
