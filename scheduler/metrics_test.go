package scheduler

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/domain"
)

func TestABackfilledSlotIsNoLateness(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry, time.Second)
	due := time.Date(2026, 10, 11, 3, 0, 0, 0, time.UTC)
	for _, trigger := range []domain.Trigger{domain.TriggerSchedule, domain.TriggerBackfill} {
		m.late(domain.Assignment{Attempt: 1, Trigger: trigger, DueAt: due, Job: &domain.Job{}}, due.Add(time.Hour))
	}
	if _, n := metric(t, registry, "punctual_lateness_seconds"); n != 1 {
		t.Errorf("%d observed, want the scheduled one alone", n)
	}
}

// The first hundred tenants are counted by themselves, and no count ever falls.
func TestPunctualityIsCountedByTenant(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry(), time.Second)
	due := time.Date(2026, 10, 11, 3, 0, 0, 0, time.UTC)
	for tenant := range int32(120) {
		for _, after := range []time.Duration{time.Second, time.Second + 1} {
			m.late(domain.Assignment{Attempt: 1, DueAt: due, Job: &domain.Job{Tenant: tenant + 1}}, due.Add(after))
		}
	}
	got := m.Punctuality()
	if len(got) != mostTenants+1 || got[1] != (Punctual{1, 1}) || got[0] != (Punctual{20, 20}) {
		t.Errorf("%d tenants; the first: %v, the others: %v", len(got), got[1], got[0])
	}
}
