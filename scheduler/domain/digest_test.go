package domain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/jobspec"
)

const pager = `"notify":[{"on":["dead","recovered"],"url":"http://127.0.0.1:9/a"},{"on":["late"],"url":"http://127.0.0.1:9/b"},{"on":["late"],"url":"http://127.0.0.1:9/a"}]`

func TestAJobNotifiesOfWhatItsURLsAskFor(t *testing.T) {
	job := compiled(t, `{`+pager+`}`)
	for event, want := range map[jobspec.Event]bool{
		jobspec.EventDead: true, jobspec.EventRecovered: true, jobspec.EventLate: true, jobspec.EventMissed: false,
	} {
		if got := jobspec.Asks(job.Notify, event); got != want {
			t.Errorf("%s: %t", event, got)
		}
	}
	n := Digest{Events: []DigestEvent{
		{Event: jobspec.EventMissed}, {Event: jobspec.EventLate}, {Event: jobspec.EventDead},
	}}
	for url, want := range map[string][]DigestEvent{
		"http://127.0.0.1:9/a": {{Event: jobspec.EventLate}, {Event: jobspec.EventDead}}, "http://127.0.0.1:9/b": {{Event: jobspec.EventLate}},
		"http://127.0.0.1:9/c": {},
	} {
		if diff := cmp.Diff(want, n.For(jobspec.Recipient{Format: jobspec.FormatJSON, URL: url}, job.Notify).Events); diff != "" {
			t.Errorf("%s: -want +got:\n%s", url, diff)
		}
	}
	if len(n.Events) != 3 || n.Events[0].Event != jobspec.EventMissed {
		t.Errorf("the digest itself is now %v", n.Events)
	}
}

// A notice takes only its identity from its job: not the headers, which may be secret, nor the gate, nor the time at
// which a run expires.
func TestANoticeIsSentAsItself(t *testing.T) {
	got := send(t, `{"name":"job","concurrency_policy":"forbid","expires_after":"1s","timeout":"1h","retry":{"max_attempts":1},"completion":"async","delivery":"at_most_once",
		"target":{"url":"$URL/target","method":"PUT","headers":{"Authorization":"secret"},"body":"job's own"},`+pager+`}`, func(a *Assignment) {
		notice, err := a.Job.Notice(a.Job.URL().Scheme+"://"+a.Job.URL().Host+"/pager?x=1", "")
		must(t, err)
		want := jobspec.Definition{Name: "job", Target: jobspec.Target{URL: notice.Target.URL}, Notify: []jobspec.Notify{}}.WithDefaults()
		if diff := cmp.Diff(want, notice.Definition, cmp.AllowUnexported(jobspec.Duration{}, jobspec.Instant{})); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if notice.ID != a.Job.ID || notice.Tenant != a.Job.Tenant || notice.Version != a.Job.Version {
			t.Errorf("it is of job %s version %d", notice.ID, notice.Version)
		}
		a.Job, a.Trigger, a.Body = notice, TriggerNotify, []byte(`{"job":"job"}`)
	})
	if got.Method != "POST" || got.Path != "/pager?x=1" || got.Body != `{"job":"job"}` {
		t.Errorf("%s %s %s", got.Method, got.Path, got.Body)
	}
	checkHeaders(t, got.Header, map[string]string{
		"Content-Type": "application/json", "Authorization": "", "Punctual-Trigger": "notify", "Punctual-Job": "job",
		"Webhook-Id": runID, "Idempotency-Key": runID,
	})
	if _, err := compiled(t, `{}`).Notice("ftp://example.com", ""); err == nil {
		t.Error("an address that is none is taken")
	}
}

// Digest that come later add to what they repeat: what the earlier ones know is kept.
func TestMergedDigestsKeepWhatIsKnown(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 12, 1, 2, minute, 0, 0, time.UTC) }
	earlier := Digest{Events: []DigestEvent{
		{
			Event: jobspec.EventLate, Count: 15, FirstAt: at(1), LastAt: at(2), Cause: "limit", CauseName: "max_concurrent_runs",
			Runs: make([]DigestRun, 15),
		},
		{Event: jobspec.EventMissed, Count: 1, Slots: 3, FirstAt: at(3), LastAt: at(3)},
	}}
	later := Digest{Job: "renamed", Events: []DigestEvent{
		{Event: jobspec.EventLate, Count: 15, FirstAt: at(5), LastAt: at(6), Runs: make([]DigestRun, 15)},
	}}
	want := Digest{Job: "renamed", Events: []DigestEvent{
		{Event: jobspec.EventMissed, Count: 1, Slots: 3, FirstAt: at(3), LastAt: at(3)},
		{
			Event: jobspec.EventLate, Count: 30, FirstAt: at(1), LastAt: at(6), Cause: "limit", CauseName: "max_concurrent_runs",
			Runs: make([]DigestRun, DigestRuns),
		},
	}}
	if diff := cmp.Diff(want, earlier.Merge(later)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A host is unreachable if the newest trouble is that nothing connected to it.
func TestWhatAnUnreachableHostIs(t *testing.T) {
	t.Parallel()
	refused, answered := DigestRun{Reason: ReasonConnect}, DigestRun{Reason: ReasonHTTP5xx, HTTPStatus: 503}
	for _, test := range []struct {
		name, host string
		runs       [2]DigestRun // the older and the newer
		want       bool
	}{
		{"nothing connects", "a:443", [2]DigestRun{answered, refused}, true},
		{"it answered last", "a:443", [2]DigestRun{refused, answered}, false},
		{"a placeholder names it", "", [2]DigestRun{refused, refused}, false},
	} {
		d := Digest{Host: test.host, Events: []DigestEvent{
			{Event: jobspec.EventFailing, Runs: test.runs[:1]},
			{Event: jobspec.EventDead, Runs: test.runs[1:]},
			{Event: jobspec.EventLate},
		}}
		if _, got := d.Unreachable(); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
