package store

import (
	"errors"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/tenants"
)

// byDefault makes a list of notices the tenant's default.
func (c crud) byDefault(list ...domain.Notify) {
	c.t.Helper()
	_, err := c.Tenants.EditTenant(c.t.Context(), "default", func(now *tenants.Tenant) error {
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
	c.later()
	c.wantHeard("late 1, missed 1")
	// The default is removed again.
	c.byDefault()
	c.claimReady(10)
	c.dies("job")
	c.wantCount(0, "notices are for nobody", `SELECT count(*) FROM punctual.notices`)
}

func TestADefaultNamesASecretThatIsThere(t *testing.T) {
	c := newClaimer(t)
	_, err := c.Tenants.EditTenant(t.Context(), "default", func(now *tenants.Tenant) error {
		now.Notify = []domain.Notify{{On: domain.Events, Format: domain.FormatPagerDuty, Secret: "pagerduty-key"}}
		return nil
	})
	if unknown, is := errors.AsType[domain.Problem](err); !is || unknown.Field != "notify[0].secret" {
		t.Fatal(err)
	}
}
