package notices

import (
	"testing"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// Of the events of a job that are over, the newest with a known cause names the subject that they are told under.
func TestTheNewestEventNamesTheCause(t *testing.T) {
	limit := domain.DigestEvent{Event: jobspec.EventLate, Cause: "limit", CauseName: "max_runs_per_second"}
	queue := domain.DigestEvent{Event: jobspec.EventMissed, Cause: "queue_unserved", CauseName: "reports"}
	late, missed := domain.DigestEvent{Event: jobspec.EventLate}, domain.DigestEvent{Event: jobspec.EventMissed}
	for want, events := range map[string][]domain.DigestEvent{
		"queue:shop:reports":             {limit, queue},
		"limit:shop:max_runs_per_second": {limit, missed},
		"missed:shop":                    {late, missed},
		"late:shop":                      {missed, late},
	} {
		if got := passingKey(domain.Digest{Tenant: "shop", Events: events}); got != want {
			t.Errorf("%v is told under %s, want %s", events, got, want)
		}
	}
}
