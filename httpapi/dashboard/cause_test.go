package dashboard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/runs"
)

func TestACauseIsOnePhrase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason domain.Reason
		status int
		err    string
		want   string
	}{
		{domain.ReasonHTTP5xx, 503, "the target answered 503: upstream ledger is locked", "503: upstream ledger is locked"},
		{domain.ReasonHTTP5xx, 503, "the target answered 503", "503 Service Unavailable"},
		{
			domain.ReasonRedirect, 302, "the target answered 302 and redirects to http://a/; redirects are not followed",
			"302: redirects to http://a/; redirects are not followed",
		},
		{domain.ReasonTimeout, 0, "no answer within 4.999984871s", "no answer within 5 s"},
		{domain.ReasonTimeout, 0, "no answer within 1h30m", "no answer within 1 h 30 min"},
		{domain.ReasonTimeout, 0, "", "timeout"},
		{domain.ReasonConnect, 0, "connection refused by 10.0.0.1:443", "connection refused by 10.0.0.1:443"},
		{domain.ReasonTLS, 0, "the certificate has expired", "TLS failed: the certificate has expired"},
		{"", 200, "", "200"},
	} {
		var reason *domain.Reason
		if c.reason != "" {
			reason = &c.reason
		}
		var status *int
		if c.status != 0 {
			status = &c.status
		}
		if got := causeOf(reason, status, &c.err); got != c.want {
			t.Errorf("%s %d %q: %q, want %q", c.reason, c.status, c.err, got, c.want)
		}
	}
}

func TestALengthIsRoundedAsItIsSaid(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		4999984871: "5 s", 9996 * time.Millisecond: "10 s", 999600 * time.Microsecond: "1 s", 59700 * time.Millisecond: "1 min",
		1500 * time.Millisecond: "1.5 s", 271 * time.Millisecond: "271 ms", 5 * time.Second: "5 s", 90 * time.Second: "1 min 30 s",
	} {
		if got := length(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestAChangeNamesDefaultsAndNoVersion(t *testing.T) {
	t.Parallel()
	entry := audit.JobChange{
		Action: "job.update",
		Before: json.RawMessage(`{"version": 3, "definition": {"retry": {"multiplier": 2}, "timeout": "5s"}}`),
		After:  json.RawMessage(`{"version": 4, "definition": {"retry": {"max_attempts": 7, "multiplier": 2}}}`),
	}
	got := fmt.Sprint(changedIn(entry))
	if want := "[{retry.max_attempts 5 (default) 7} {timeout 5s 30s (default)}]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	entry.Action, entry.Before = "job.create", nil
	if got := changedIn(entry); len(got) != 2 || got[0].Before != "" {
		t.Errorf("what a new job had before: %v", got)
	}
}

// What a run by hand is due for is no jitter, and no step is +0 s after the one before.
func TestTheStepsOfARunSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	slot := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	reason, status, err := domain.ReasonHTTP5xx, 503, "the target answered 503: upstream ledger is locked"
	end := slot.Add(271 * time.Millisecond)
	run := runs.Run{
		Status: domain.StatusDead, Reason: &reason, HTTPStatus: &status, Error: &err, Attempt: 1,
		Trigger:      domain.TriggerManual,
		ScheduledFor: slot.Add(-time.Hour), DueAt: slot, CreatedAt: slot, StartedAt: &slot, FinishedAt: &end,
		RerunOf: new(domain.NewRunID(slot)),
		Attempts: []runs.Attempt{{
			Number: 1, StartedAt: slot, FinishedAt: &end, Outcome: domain.AttemptFailed, Reason: &reason, HTTPStatus: &status,
			Error: &err,
		}},
		Request: &domain.SentRequest{URL: "http://billing/"},
	}
	var said []string
	for _, s := range historyOf(run) {
		said = append(said, strings.TrimSpace(s.After+" "+s.Label+" "+s.Text))
	}
	got := strings.Join(said, "; ")
	want := "slot of the run that this one makes again; +1 h recorded; sent attempt 1; " +
		"+271 ms failed 503: upstream ledger is locked; dead"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := sentence(run), "Died after 1 attempt, which took 271 ms: 503 from billing: upstream ledger is locked."; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if told := (runView{Run: run}).Told(); told != "" {
		t.Errorf("the error is said twice: %s", told)
	}
	run.RerunOf, run.Trigger = nil, domain.TriggerSchedule
	if all := historyOf(run); all[1].Label != "due" || all[1].Text != "the slot plus the job's jitter" {
		t.Errorf("a slot with jitter: %+v", all)
	}
}
