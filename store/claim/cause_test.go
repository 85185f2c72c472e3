package claim_test

import (
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/runs"
)

// A slot was due five minutes ago, and is missed. Each case plants the facts as they would be on record by now.
func TestAMissedSlotSaysWhy(t *testing.T) {
	t.Parallel()
	served := func(c Replica, queue, since, until string) {
		c.Exec(`INSERT INTO punctual.service_periods (queue, since, until, survived)
			SELECT id, now() - $2::interval, now() - $3::interval, false FROM punctual.queues WHERE name = $1`,
			queue, since, until)
	}
	note := func(c Replica) {
		_, err := c.Replicas.NoteService(t.Context())
		Must(t, err)
	}
	frozen := func(c Replica, tenant int32) {
		c.Freeze(tenant, "the warehouse moves")
		c.Exec(`UPDATE punctual.tenants SET frozen_at = now() - interval '10 minutes' WHERE frozen_at IS NOT NULL`)
		c.Exec(`UPDATE punctual.deployment SET frozen_at = now() - interval '10 minutes' WHERE frozen_at IS NOT NULL`)
		c.Unfreeze(tenant)
	}
	for _, test := range []struct {
		name, kind string
		plant      func(c Replica)
		says       string
	}{
		{"a freeze that is over", "frozen", func(c Replica) { frozen(c, c.Tenant) }, "the tenant was frozen from "},
		{"a freeze of all", "frozen", func(c Replica) { frozen(c, -1) }, "(the warehouse moves)"},
		{"a limit", "limit", func(c Replica) {
			c.Exec(`INSERT INTO punctual.tenant_usage (tenant, held_by, held_since, held_at)
				VALUES ($1, 'max_runs_per_second', now() - interval '6 minutes', now())`, c.Tenant)
		}, "the tenant was at max_runs_per_second from "},
		{"no replica", "no_replica", func(c Replica) {
			served(c, "default", "2 hours", "6 minutes")
			note(c)
		}, "no replica was alive from "},
		{"nobody served the queue", "queue_unserved", func(c Replica) {
			_, err := c.Replicas.EnsureQueues(t.Context(), []string{"other"})
			Must(t, err)
			served(c, "default", "2 hours", "6 minutes")
			served(c, "other", "2 hours", "1 second")
			note(c)
		}, `no live replica served the queue "default" from `},
		{"the database was away", "database_away", func(c Replica) {
			c.Exec(`UPDATE punctual.replicas SET started_at = now() - interval '1 day'`)
			served(c, "default", "2 hours", "6 minutes")
			note(c)
		}, "no replica could reach the database from "},
		{"the longest of two", "frozen", func(c Replica) {
			served(c, "default", "2 hours", "1 minute")
			note(c)
			frozen(c, c.Tenant)
		}, "the tenant was frozen"},
		{"facts of other times", "", func(c Replica) {
			served(c, "default", "2 hours", "30 minutes")
			served(c, "default", "20 minutes", "15 seconds")
			note(c)
			c.Exec(`INSERT INTO punctual.tenant_usage (tenant, held_by, held_since, held_at)
				VALUES ($1, 'max_runs_per_second', now() - interval '20 minutes', now() - interval '10 minutes')`, c.Tenant)
		}, "the policy for missed slots skipped it."},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := NewReplica(t)
			c.Renewed()
			slot := c.Clock().Add(-5 * time.Minute).Truncate(time.Second)
			job := c.Create("job", Everything, func(d *jobspec.Definition) {
				d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(time.Hour), StartsAt: jobspec.InstantOf(slot)}
				d.Missed.Policy, d.Missed.Tolerance = jobspec.MissedSkip, jobspec.DurationOf(time.Second)
			})
			c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 day'`)
			c.SetNext(job.ID, slot)
			test.plant(c)
			if claimed := c.Claim(10, true).Runs; len(claimed) > 0 {
				t.Fatalf("claimed %+v", claimed)
			}
			e := c.Explained("job", slot)
			if !strings.Contains(e.Text, "was missed") || !strings.Contains(e.Text, test.says) {
				t.Errorf("%q does not say %q", e.Text, test.says)
			}
			if e.Run == nil {
				t.Fatal("there is no recorded skip")
			}
			list, _, err := c.Runs.ListRuns(t.Context(), c.Tenant, runs.Filter{JobID: &job.ID})
			Must(t, err)
			Must(t, c.Runs.FillCauses(t.Context(), c.Tenant, list))
			got := list[0].Cause
			if test.kind == "" {
				if got != nil {
					t.Errorf("the cause is %+v", got)
				}
				return
			}
			if got == nil || got.Kind != test.kind || !strings.Contains(got.Text, test.says) || got.Until == nil {
				t.Fatalf("the cause is %+v", got)
			}
			c.Tell()
			c.Pass("30 s") // in which the slots of other jobs would join
			told := Digest(t, c.WantHeard("missed 1"))
			if len(told.Events) != 1 || len(told.Events[0].Runs) != 1 || told.Events[0].Runs[0].Error != got.Text {
				t.Errorf("the notice tells %+v, want the cause %q", told.Events, got.Text)
			}
		})
	}
}

func TestALateRunSaysWhy(t *testing.T) {
	c := NewReplica(t)
	c.Renewed()
	slot := c.Clock().Add(-5 * time.Minute).Truncate(time.Second)
	job := c.Create("job", func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(time.Hour), StartsAt: jobspec.InstantOf(slot)}
		d.Missed.Policy, d.Missed.Tolerance = jobspec.MissedFireOnce, jobspec.DurationOf(time.Second)
	})
	c.Exec(`UPDATE punctual.job_versions SET valid_from = now() - interval '1 day'`)
	c.SetNext(job.ID, slot)
	c.Freeze(c.Tenant, "")
	c.Exec(`UPDATE punctual.tenants SET frozen_at = now() - interval '10 minutes' WHERE id = $1`, c.Tenant)
	c.Unfreeze(c.Tenant)
	run := c.One(c.Claim(10, true))
	c.Exec(`UPDATE punctual.runs SET status = 'succeeded', finished_at = now() WHERE id = $1`, run.RunID)
	if e := c.Explained("job", slot); !strings.Contains(e.Text, "after the job's tolerance, because the tenant was frozen from ") {
		t.Errorf("%q does not say why it was late", e.Text)
	}
}

func TestServiceIsNotedOnlyOnChangeAndForgotten(t *testing.T) {
	c := NewReplica(t)
	c.Renewed()
	note := func() {
		t.Helper()
		_, err := c.Replicas.NoteService(t.Context())
		Must(t, err)
	}
	periods := func() int { return c.Count(`SELECT count(*) FROM punctual.service_periods`) }
	note()
	note()
	if n := periods(); n != 1 {
		t.Fatalf("%d periods after two notes", n)
	}
	c.Exec(`UPDATE punctual.service_periods SET since = since - interval '1 h', until = until - interval '20 s'`)
	note()
	if n := c.Count(`SELECT count(*) FROM punctual.service_periods WHERE until > now() - interval '15 s'`); n != 1 || periods() != 1 {
		t.Error("a short delay ended the period")
	}
	c.Exec(`UPDATE punctual.replicas SET draining = true`)
	c.Exec(`UPDATE punctual.service_periods SET until = until - interval '40 s'`)
	note()
	if n := periods(); n != 1 {
		t.Errorf("a replica that drains made %d periods", n)
	}
	c.Renewed()
	note()
	if n := periods(); n != 2 {
		t.Errorf("%d periods after a gap", n)
	}
	c.Exec(`UPDATE punctual.service_periods SET since = since - interval '2 years', until = until - interval '2 years'`)
	if n, left, err := c.ForgetOld(t.Context(), "service_periods"); n != 2 || left || err != nil {
		t.Errorf("forgot %d, %t, %v", n, left, err)
	}
}

// The function reads what tenants may not see.
func TestATenantLearnsNoCauseOfAnotherNorWhoFrozeTheDeployment(t *testing.T) {
	c := NewReplica(t)
	other := c.NewTenant("other").ID
	const ask = `SELECT coalesce((SELECT detail FROM punctual.held_up_by($1, 1::smallint, now() - interval '5 minutes', now())), '')`
	asked := func(as, of int32) (text string) {
		Must(t, c.DB.Callers.Reader(as).QueryRow(t.Context(), ask, of).Scan(&text))
		return text
	}
	c.Freeze(other, "they have not paid")
	c.Exec(`UPDATE punctual.tenants SET frozen_at = now() - interval '10 minutes' WHERE id = $1`, other)
	if text := asked(other, other); !strings.Contains(text, "they have not paid") {
		t.Errorf("the tenant itself is told %q", text)
	}
	if text := asked(c.Tenant, other); text != "" {
		t.Errorf("another tenant is told %q", text)
	}
	c.Freeze(-1, "the warehouse moves")
	c.Exec(`UPDATE punctual.deployment SET frozen_at = now() - interval '20 minutes', frozen_by = 'an operator'`)
	if text := asked(c.Tenant, c.Tenant); !strings.Contains(text, "the warehouse moves") || strings.Contains(text, "an operator") {
		t.Errorf("of the deployment's freeze a tenant is told %q", text)
	}
}
