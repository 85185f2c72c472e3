package store

import (
	"errors"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/runs"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// byDefault makes a list of notices the tenant's default.
func (c crud) byDefault(list ...domain.Notify) {
	c.t.Helper()
	_, err := c.EditTenant(c.t.Context(), "default", func(now *tenants.Tenant) error {
		now.Notify = list
		return nil
	})
	must(c.t, err)
}

func tellsNobody(d *domain.Definition) { d.Notify = []domain.Notify{} }

func TestTheTenantsDefaultTellsOfJobsThatDoNotSayWhoIsTold(t *testing.T) {
	c := newClaimer(t)
	c.create("silent", never, tellsNobody)
	c.create("own", never, notify("https://own.example/", domain.EventDead))
	c.create("job", never)
	c.dies("job")
	c.wantHeard("")
	c.byDefault(domain.Notify{On: []domain.Event{domain.EventFailing, domain.EventRecovered}, URL: hook})
	c.dies("silent")
	c.wantHeard("")
	c.dies("own")
	if heard := c.hears(); len(heard) != 1 || summary(t, heard["https://own.example/"]) != "dead 1" {
		t.Fatalf("%d are told", len(heard))
	}
	c.dies("job") // the failure before the default existed is not recorded, so this one is the first
	c.wantHeard("failing 1")
	c.dies("job")
	c.wellAgain("job")
	c.wantHeard("recovered 1")
	// Notices of late and missed slots, which a claim and an edit settle.
	c.byDefault(domain.Notify{On: []domain.Event{domain.EventLate, domain.EventMissed}, URL: hook})
	late := c.create("late", halfPast)
	c.slotAgo(late.ID, 5*time.Hour)
	c.one(c.claim(10, true))
	c.wantHeard("late 1, missed 1")
	edited := c.create("edited", halfPast)
	c.slotAgo(edited.ID, 5*time.Hour)
	c.edit("edited", every(2*time.Hour))
	c.hearsOf("edited", "late 1, missed 1")
	// The default is removed again.
	c.byDefault()
	c.dies("job")
	c.wantCount(0, "notices are for nobody", `SELECT count(*) FROM punctual.notices`)
}

// hearsOf fails the test unless a job's next notice says exactly this. Other runs may be claimed beside it.
func (c claimer) hearsOf(job, want string) {
	c.t.Helper()
	c.tell()
	for _, a := range c.claimReady(100).Runs {
		if a.Trigger == domain.TriggerNotify && a.Job.Name == job {
			if got := summary(c.t, a); got != want {
				c.t.Errorf("of %s is told %s, want %s", job, got, want)
			}
			return
		}
	}
	c.t.Errorf("nobody is told of %s", job)
}

func TestADefaultNamesASecretThatIsThere(t *testing.T) {
	c := newClaimer(t)
	_, err := c.EditTenant(t.Context(), "default", func(now *tenants.Tenant) error {
		now.Notify = []domain.Notify{{On: domain.Events, Format: domain.FormatPagerDuty, Secret: "pagerduty-key"}}
		return nil
	})
	if unknown, is := errors.AsType[*secrets.UnknownSecretError](err); !is || unknown.Field != "notify[0].secret" {
		t.Fatal(err)
	}
}

func TestNoticesAreNoRunsOfTheirJobs(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.dies("job")
	notice := c.wantHeard("failing 1, dead 1")
	for _, f := range []runs.Filter{{}, {Job: "job"}, {Status: domain.StatusRunning}} {
		runs, _, err := c.ListRuns(t.Context(), c.tenant, f)
		must(t, err)
		for _, r := range runs {
			if r.ID == notice.RunID {
				t.Errorf("%+v lists the notice", f)
			}
		}
	}
	runs, _, err := c.ListRuns(t.Context(), c.tenant, runs.Filter{Trigger: domain.TriggerNotify})
	if err != nil || len(runs) != 1 || runs[0].ID != notice.RunID {
		t.Errorf("asked for notices: %v (%v)", runs, err)
	}
	c.finish(buried(notice))
	c.wantCount(0, "the views have it", `SELECT (SELECT count(*) FROM punctual.run_history WHERE id = $1)
		+ (SELECT count(*) FROM punctual.failures WHERE run_id = $1)`, notice.RunID)
}
