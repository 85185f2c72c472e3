package notice

import (
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// newsOf is news of a job with events, each of which happened once.
func newsOf(job string, events ...domain.Event) domain.News {
	news := domain.News{Job: job}
	for _, e := range events {
		news.Events = append(news.Events, domain.NewsEvent{Event: e, Count: 1, FirstAt: noon, LastAt: noon})
	}
	return news
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

// A recovery does not say that slots are no longer skipped. Under a former name, both are over.
func TestARecoveryEndsAllAlertsButThatOfSkippedSlots(t *testing.T) {
	t.Parallel()
	news := newsOf("now", domain.EventRecovered)
	news.Former = []domain.Identity{{Job: "before"}}
	ended := map[string][]string{}
	for _, a := range ofJob(news, true, noon) {
		ended[a.Labels["job"]] = append(ended[a.Labels["job"]], a.Labels["alertname"])
	}
	const skipped = "PunctualSlotsOverlap"
	if slices.Contains(ended["now"], skipped) || !slices.Contains(ended["now"], "PunctualRunDead") ||
		!slices.Contains(ended["before"], skipped) || !slices.Contains(ended["before"], "PunctualRunDead") {
		t.Errorf("ended: %v", ended)
	}
}

// A job of which there is nothing new is troubled still, if trouble is what the subject is about.
func TestTheWorstOfASubject(t *testing.T) {
	t.Parallel()
	well, quiet, late := newsOf("a", domain.EventRecovered), newsOf("b"), newsOf("c", domain.EventLate)
	for _, test := range []struct {
		kind Kind
		jobs []domain.News
		want string
	}{
		{KindJobs, []domain.News{well, quiet}, "critical"},
		{KindHost, []domain.News{quiet}, "critical"},
		{KindJobs, []domain.News{well}, "info"},
		{KindLimit, []domain.News{quiet, late}, "warning"},
	} {
		if got := worst(Subject{Kind: test.kind, Jobs: test.jobs}); got != test.want {
			t.Errorf("%s of %v: %s, want %s", test.kind, test.jobs, got, test.want)
		}
	}
}

// PagerDuty is told why an incident ends if no run has succeeded.
func TestPagerDutyIsToldWhyNobodyEndsAnIncident(t *testing.T) {
	t.Parallel()
	deleted := newsOf("job", domain.EventEnded)
	deleted.Events[0].Cause = domain.EndJobDeleted
	for want, news := range map[string]domain.News{
		"job job was deleted": deleted, "": newsOf("job", domain.EventRecovered),
	} {
		got := ""
		if p := pagerDuty(AboutJob(news)).Payload; p != nil {
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
	few, many := newsOf("few", domain.EventMissed), newsOf("many", domain.EventMissed)
	many.Events[0].Slots = 5
	got := (Subject{Kind: KindMissed, Jobs: []domain.News{few, many}}).Title()
	if !strings.HasPrefix(got, "6 slots of 2 jobs missed") {
		t.Error(got)
	}
}
