package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

func TestWatch(t *testing.T) {
	other := uuid.New()
	type step struct {
		after time.Duration // since the previous step
		beat  int64
		still bool // the other replica is taken for lost
	}
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{
			"a heartbeat that moves is alive, however slowly it moves",
			[]step{
				{0, 1, false},
				{2 * time.Second, 1, false},
				{2 * time.Second, 1, false},
				{2 * time.Second, 2, false},
				{2 * time.Second, 2, false},
				{2 * time.Second, 2, false},
				{2 * time.Second, 3, false},
				{2 * time.Second, 3, false},
			},
		},
		{
			"one that stands still for a TTL is lost, and no earlier",
			[]step{
				{0, 1, false},
				{4 * time.Second, 1, false},
				{4 * time.Second, 1, false},
				{1999 * time.Millisecond, 1, false},
				{time.Millisecond, 1, true},
				{2 * time.Second, 1, true},
			},
		},
		{
			"it is watched from when it was first seen",
			[]step{
				{4 * time.Second, 1, false}, {4 * time.Second, 1, false}, {4 * time.Second, 1, false}, {2 * time.Second, 1, true},
			},
		},
		{
			"after a gap in this replica's own renewals everybody is watched anew",
			[]step{
				{0, 1, false},
				{4 * time.Second, 1, false},
				{5 * time.Second, 1, false},
				{5001 * time.Millisecond, 1, false},
				{5 * time.Second, 1, false},
				{5 * time.Second, 1, true},
			},
		},
		{
			"a database outage makes nobody look dead",
			[]step{{0, 1, false}, {time.Hour, 1, false}, {2 * time.Second, 2, false}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Now()
			w := newWatch(now)
			for i, s := range test.steps {
				now = now.Add(s.after)
				still := w.observe(now, now, []Heartbeat{{other, s.beat}})
				if got := slices.Contains(still, Heartbeat{other, s.beat}); got != s.still {
					t.Fatalf("step %d: taken for lost: %t, want %t", i, got, s.still)
				}
			}
		})
	}
}

func TestAReplicaThatCannotRenewStopsItself(t *testing.T) {
	now := time.Now()
	w := newWatch(now)
	w.observe(now.Add(time.Second), now.Add(2*time.Second), nil)
	if w.expired(now.Add(time.Second + selfStop - 1)) {
		t.Error("expired too early")
	}
	if !w.expired(now.Add(time.Second + selfStop)) {
		t.Error("not expired in time; the renewal counts from when it was sent")
	}
	w.observe(now.Add(time.Minute), now.Add(time.Minute), nil)
	if w.expired(now.Add(time.Minute)) {
		t.Error("expired although it has renewed")
	}
}

func TestAReplicaStopsItselfBeforeOthersTakeOver(t *testing.T) {
	for _, test := range []struct {
		name           string
		sent           time.Duration // when one replica sent its last renewal
		asked, learned time.Duration // when another replica sent the first look that shows it, and when it got the result
	}{
		{"on a fast network", time.Second, time.Second, time.Second},
		{"on a slow one, where a look that was sent before a renewal shows it", time.Second, 0, 2900 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Now()
			at := func(d time.Duration) time.Time { return began.Add(d) }
			victim, other := newWatch(began), newWatch(began)
			beat := []Heartbeat{{uuid.New(), 7}}
			victim.observe(at(test.sent), at(test.learned), nil)
			other.observe(at(test.asked), at(test.learned), beat)
			d := 4 * time.Second
			for len(other.observe(at(d), at(d), beat)) == 0 {
				d += 10 * time.Millisecond
			}
			if lastLook := d - selfCheckEvery*11/10; !victim.expired(at(lastLook)) {
				t.Errorf("taken over %s after the last renewal was sent, when it need not have noticed", d-test.sent)
			}
		})
	}
}

func TestJudgeLost(t *testing.T) {
	job := &domain.Job{Definition: jobspec.Definition{Retry: jobspec.Retry{MaxAttempts: 3}}.WithDefaults()}
	for _, test := range []struct {
		name            string
		attempt, losses int
		verdict         domain.Verdict
		reason          domain.Reason
	}{
		{"a lost attempt is retried at once", 1, 0, domain.RetryRun, domain.ReasonLost},
		{"it counts, so the last one is the end", 3, 0, domain.Bury, domain.ReasonLost},
		{"three losses in a row are poison", 3, 2, domain.Bury, domain.ReasonPoison},
		{"also when attempts are left", 2, 2, domain.Bury, domain.ReasonPoison},
		{"two are not", 2, 1, domain.RetryRun, domain.ReasonLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := domain.JudgeLost(domain.Assignment{Job: job, Attempt: test.attempt}, test.losses, time.Now(), time.Now())
			if o.Verdict != test.verdict || o.Reason != test.reason || o.RetryIn != 0 || o.End().Attempt != domain.AttemptLost ||
				!o.End().Counts {
				t.Errorf("got verdict %d, reason %s, retry in %s, %+v", o.Verdict, o.Reason, o.RetryIn, o.End())
			}
		})
	}
}
