package domain

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
)

func TestReplayCarriesTheFirstRunsIdentity(t *testing.T) {
	first := uuid.MustParse("01a128e7-2780-8804-a169-8fb691c134cc")
	got := send(t, `{"name":"job","schedule":{"every":"1h"},"target":{"url":"$URL"}}`, func(a *Assignment) {
		a.Trigger, a.WebhookID, a.IdempotencyKey = TriggerReplay, first, "key"
	})
	checkHeaders(t, got.Header, map[string]string{
		"Webhook-Id": first.String(), "Idempotency-Key": "key", "Punctual-Run": runID, "Punctual-Trigger": "replay",
	})
}

func TestReplaysAndBackfillsDoNotExpire(t *testing.T) {
	job := compiled(t, `{"schedule":{"every":"1h"},"expires_after":"1s"}`)
	due := time.Now()
	a := Assignment{Job: job, DueAt: due, Attempt: 1, Trigger: TriggerSchedule}
	if !a.Expired(due.Add(time.Minute)) {
		t.Error("a slot's run does not expire")
	}
	for _, trigger := range []Trigger{TriggerBackfill, TriggerReplay} {
		if a.Trigger = trigger; a.Expired(due.Add(time.Minute)) {
			t.Errorf("a %s expires", trigger)
		}
	}
	if o := Judge(a, wire.Result{Status: http.StatusBadGateway, Reason: "http_5xx"}, due, due); o.Verdict != RetryRun {
		t.Errorf("a failed replay: %+v", o)
	}
}

func TestOnlyTheRunOfASlotCarriesTheKeyOfTheSlot(t *testing.T) {
	slot := instant(t, "03:00")
	key, own, other := jobID.String()+":1791687600", SlotRunID(jobID, slot), NewRunID(slot)
	for _, c := range []struct {
		trigger Trigger
		run     uuid.UUID
		want    string
	}{
		{TriggerSchedule, own, key},
		{TriggerCatchup, own, key},
		{TriggerBackfill, own, key},
		{TriggerBackfill, other, other.String()},
		{TriggerManual, other, other.String()},
	} {
		if got := IdempotencyKey(c.trigger, c.run, jobID, slot); got != c.want {
			t.Errorf("%s of run %s: %q, want %q", c.trigger, c.run, got, c.want)
		}
	}
}
