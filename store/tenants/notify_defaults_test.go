package tenants_test

import (
	"errors"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/tenants"
)

func TestTheTenantsDefaultTellsOfJobsThatDoNotSayWhoIsTold(t *testing.T) {
	c := NewReplica(t)
	c.Create("silent", Never, TellsNobody)
	c.Create("own", Never, Notify("https://own.example/", jobspec.EventDead))
	c.Create("job", Never)
	c.Dies("job")
	c.WantHeard("")
	c.ByDefault(jobspec.Notify{On: []jobspec.Event{jobspec.EventFailing, jobspec.EventRecovered}, URL: Hook})
	c.Dies("silent")
	c.WantHeard("")
	c.Dies("own")
	if heard := c.Hears(); len(heard) != 1 || Summary(t, heard["https://own.example/"]) != "dead 1" {
		t.Fatalf("%d are told", len(heard))
	}
	c.Dies("job") // the failure before the default existed is not recorded, so this one is the first
	c.WantHeard("failing 1")
	c.Dies("job")
	c.WellAgain("job")
	c.WantHeard("recovered 1")
	// Notices of late and missed slots, which a claim and an edit settle.
	c.ByDefault(jobspec.Notify{On: []jobspec.Event{jobspec.EventLate, jobspec.EventMissed}, URL: Hook})
	late := c.Create("late", HalfPast)
	c.SlotAgo(late.ID, 5*time.Hour)
	c.One(c.Claim(10, true))
	c.WantHeard("late 1, missed 1")
	edited := c.Create("edited", HalfPast)
	c.SlotAgo(edited.ID, 5*time.Hour)
	c.Edit("edited", Every(2*time.Hour))
	c.Later()
	c.WantHeard("late 1, missed 1")
	// The default is removed again.
	c.ByDefault()
	c.ClaimReady(10)
	c.Dies("job")
	c.WantCount(0, "notices are for nobody", `SELECT count(*) FROM punctual.notices`)
}

func TestADefaultNamesASecretThatIsThere(t *testing.T) {
	c := NewReplica(t)
	_, err := c.Tenants.EditTenant(t.Context(), "default", func(now *tenants.Tenant) error {
		now.Notify = []jobspec.Notify{{On: jobspec.Events, Format: jobspec.FormatPagerDuty, Secret: "pagerduty-key"}}
		return nil
	})
	if unknown, is := errors.AsType[jobspec.Problem](err); !is || unknown.Field != "notify[0].secret" {
		t.Fatal(err)
	}
}
