package storetest

import (
	"encoding/json"

	"punctual/scheduler/jobspec"
	"punctual/store/events"
)

// On makes the job run at an event, if the filter lets it through.
func On(event, filter string) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Event: event, Filter: jobspec.EventFilter(filter)}
	}
}

// Emit emits an event.
func (c Fixture) Emit(name, body string) events.Emitted {
	c.T.Helper()
	e, err := c.For(c.Tenant).Emit(c.T.Context(), name, json.RawMessage(body), "")
	Must(c.T, err)
	return e
}

// FanOut fans out events until none is left, and returns in how many batches.
func (c Fixture) FanOut() (batches int) {
	c.T.Helper()
	for {
		_, left, err := c.Events.FanOut(c.T.Context())
		Must(c.T, err)
		if !left {
			return batches
		}
		batches++
	}
}
