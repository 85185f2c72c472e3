package notice

import (
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// digestOf is the digest of a job with events, each of which happened once.
func digestOf(job string, events ...jobspec.Event) domain.Digest {
	digest := domain.Digest{Job: job}
	for _, e := range events {
		digest.Events = append(digest.Events, domain.DigestEvent{Event: e, Count: 1, FirstAt: noon, LastAt: noon})
	}
	return digest
}

// The end of what holds up runs is told to all who know of it. So its alert lasts until then, whatever was asked for.
func TestHowLongAlertsOfSubjectsLast(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind     Kind
		state    State
		resolves bool
		want     time.Duration
	}{
		{KindLimit, StateFiring, false, untilResolved},
		{KindOverlap, StateFiring, false, untilResolved},
		{KindHost, StateFiring, true, untilResolved},
		{KindHost, StateFiring, false, unresolved},
		{KindLate, StatePassing, false, passing},
		{KindLimit, StateResolved, false, 0},
	} {
		m := Message{Tenant: "shop", Subjects: []Subject{{Kind: test.kind, State: test.state}}}
		if a := alertmanager(m, test.resolves, noon)[0]; a.EndsAt.Sub(noon) != test.want {
			t.Errorf("%s, %s: it lasts %s, want %s", test.kind, test.state, a.EndsAt.Sub(noon), test.want)
		}
	}
}

// A recovery does not say that slots are no longer skipped. Under a former name, each has its own end.
func TestARecoveryEndsAllAlertsButThatOfSkippedSlots(t *testing.T) {
	t.Parallel()
	digest := digestOf("now", jobspec.EventRecovered)
	digest.Former = []domain.Identity{{Job: "before"}}
	ended := map[string][]string{}
	overlap := digestOf("now", jobspec.EventOverlapOver)
	overlap.Former = []domain.Identity{{Job: "long before"}}
	for _, d := range []domain.Digest{digest, overlap} {
		for _, a := range ofJob(AboutJob(d).Subjects[0], true, noon) {
			ended[a.Labels["job"]] = append(ended[a.Labels["job"]], a.Labels["alertname"])
		}
	}
	const skipped = "PunctualSlotsOverlap"
	trouble := []string{
		"PunctualJobFailing", "PunctualRunDead", "PunctualSlotsMissed", "PunctualRunLate", "PunctualJobStale",
		"PunctualRunDropped",
	}
	if !slices.Equal(ended["now"], append(trouble, skipped)) || !slices.Equal(ended["before"], trouble) ||
		!slices.Equal(ended["long before"], []string{skipped}) {
		t.Errorf("ended: %v", ended)
	}
}

// A job of which there is nothing new is troubled still, if trouble is what the subject is about.
func TestTheWorstOfASubject(t *testing.T) {
	t.Parallel()
	well, quiet, late := digestOf("a", jobspec.EventRecovered), digestOf("b"), digestOf("c", jobspec.EventLate)
	for _, test := range []struct {
		kind Kind
		jobs []domain.Digest
		want string
	}{
		{KindJobs, []domain.Digest{well, quiet}, "critical"},
		{KindHost, []domain.Digest{quiet}, "critical"},
		{KindJobs, []domain.Digest{well}, "info"},
		{KindLimit, []domain.Digest{quiet, late}, "warning"},
	} {
		if got := worst(Subject{Kind: test.kind, Jobs: test.jobs}); got != test.want {
			t.Errorf("%s of %v: %s, want %s", test.kind, test.jobs, got, test.want)
		}
	}
}

// PagerDuty is told why an incident ends if no run has succeeded.
func TestPagerDutyIsToldWhyNobodyEndsAnIncident(t *testing.T) {
	t.Parallel()
	deleted := digestOf("job", jobspec.EventEnded)
	deleted.Events[0].Cause = jobspec.EndJobDeleted
	for want, digest := range map[string]domain.Digest{
		"job job was deleted": deleted, "": digestOf("job", jobspec.EventRecovered),
	} {
		got := ""
		if p := pagerDuty(AboutJob(digest)).Payload; p != nil {
			got = p.Summary
		}
		if got != want {
			t.Errorf("it is told %q, want %q", got, want)
		}
	}
}

// A recorded skip stands for one slot at least.
func TestMissedSlotsAreCounted(t *testing.T) {
	t.Parallel()
	few, many := digestOf("few", jobspec.EventMissed), digestOf("many", jobspec.EventMissed)
	many.Events[0].Slots = 5
	got := (Subject{Kind: KindMissed, Jobs: []domain.Digest{few, many}}).Title()
	if !strings.HasPrefix(got, "6 slots of 2 jobs missed") {
		t.Error(got)
	}
}
