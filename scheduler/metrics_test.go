package scheduler

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler/domain"
)

func TestABackfilledSlotIsNoLateness(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	due := time.Date(2026, 10, 11, 3, 0, 0, 0, time.UTC)
	for _, trigger := range []domain.Trigger{domain.TriggerSchedule, domain.TriggerBackfill} {
		m.late(domain.Assignment{Attempt: 1, Trigger: trigger, DueAt: due}, due.Add(time.Hour))
	}
	if _, n := metric(t, registry, "punctual_lateness_seconds"); n != 1 {
		t.Errorf("%d observed, want the scheduled one alone", n)
	}
}
