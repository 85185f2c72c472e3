package storetest

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"punctual/scheduler"
	"punctual/store"
	"punctual/store/freeze"
)

// Freeze freezes a tenant, or the deployment for domain.Everybody.
func (c Fixture) Freeze(tenant int32, note string) freeze.State {
	c.T.Helper()
	state, err := c.Freezes.Freeze(c.T.Context(), tenant, note)
	Must(c.T, err)
	return state
}

// Unfreeze ends a freeze.
func (c Fixture) Unfreeze(tenant int32) freeze.State {
	c.T.Helper()
	state, err := c.Freezes.Unfreeze(c.T.Context(), tenant, "")
	Must(c.T, err)
	return state
}

// Renewed renews the heartbeat and returns what it reports.
func (c Replica) Renewed() scheduler.Pulse {
	c.T.Helper()
	pulse, err := c.Replicas.Renew(c.T.Context(), c.ReplicaID, scheduler.Condition{})
	Must(c.T, err)
	return pulse
}

// Theirs makes another tenant with a job that is due, and returns the tenant's id.
func (c Replica) Theirs(name string) int32 {
	c.T.Helper()
	made := c.NewTenant(name)
	c.Tenant = made.ID
	c.DueNow("theirs", Rarely)
	return made.ID
}

// Metric returns the values of a metric of the store, each after its labels.
func (c Fixture) Metric(name string) string {
	c.T.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(store.Collector{Store: c.Store, Punctuality: func() map[int32]scheduler.Punctual { return nil }})
	families, err := registry.Gather()
	Must(c.T, err)
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := fmt.Sprint(m.GetGauge().GetValue())
			for _, l := range m.GetLabel() {
				line = fmt.Sprintf("%q %s", l.GetValue(), line)
			}
			if f.GetName() == name {
				lines = append(lines, line)
			}
		}
	}
	return strings.Join(lines, ", ")
}
