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
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "punctual_lateness_seconds" {
			continue
		}
		if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
			t.Errorf("%d observed, want the scheduled one alone", n)
		}
		return
	}
	t.Error("there is no such metric")
}
