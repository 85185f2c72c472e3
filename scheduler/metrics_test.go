package scheduler

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/domain"
)

func TestABackfilledSlotIsNoLateness(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, trigger := range []domain.Trigger{domain.TriggerSchedule, domain.TriggerBackfill} {
		m.late(domain.Assignment{Attempt: 1, Trigger: trigger, DueAt: instant(t, "03:00")}, instant(t, "04:00"))
	}
	if _, n := metric(t, registry, "punctual_lateness_seconds"); n != 1 {
		t.Errorf("%d observed, want the scheduled one alone", n)
	}
}
