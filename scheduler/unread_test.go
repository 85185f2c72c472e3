package scheduler

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
)

// sendingTo returns the part of a scheduler that sends requests, its store, and an attempt to send.
func sendingTo(t *testing.T, url string) (*Scheduler, *fakeStore, domain.Assignment) {
	t.Helper()
	store := newFakeStore()
	s := &Scheduler{
		transport: NewTransport(store, client(t), nil, domain.Origin{}), workCtx: t.Context(),
		unread: rate.Sometimes{Interval: unreadRetry},
	}
	return s, store, domain.Assignment{
		RunID: uuid.New(), Trigger: domain.TriggerManual, Attempt: 1,
		Job: compiled(t, `{"name":"job","timeout":"20s","target":{"url":"`+url+`"}}`),
	}
}

// One failed read may concern all runs that a replica sends.
func TestThatSecretsCannotBeReadIsLoggedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		s, store, a := sendingTo(t, "http://127.0.0.1:9/")
		s.log = slog.New(slog.NewTextHandler(&lines, nil))
		store.signing = func() ([]credential.SigningKey, error) { return nil, errAway }
		for range 2 {
			for range 100 {
				if o := sentBy(s, a); o.Verdict != domain.GiveBack || o.Error == "" {
					t.Fatalf("verdict %v, error %q", o.Verdict, o.Error)
				}
			}
			time.Sleep(unreadRetry)
		}
		if n := strings.Count(lines.String(), "secrets cannot be read"); n != 2 {
			t.Errorf("%d lines, want one a second:\n%s", n, &lines)
		}
	})
}

// sentBy is the outcome of an attempt that may go out.
func sentBy(s *Scheduler, a domain.Assignment) domain.Outcome {
	o := domain.Outcome{Assignment: a}
	s.send(&o, time.Now())
	return o
}

func TestACancelBeforeAnythingIsSentLeavesNoAttempt(t *testing.T) {
	t.Parallel()
	url, requests := target(t, http.StatusOK)
	s, store, a := sendingTo(t, url)
	store.signing = func() ([]credential.SigningKey, error) {
		s.flights.cancel([]uuid.UUID{a.RunID})
		return nil, errAway
	}
	o := sentBy(s, a)
	end := o.End()
	want := domain.End{Status: domain.StatusCancelled, Number: a.Attempt - 1}
	if o.Verdict != domain.Cancel || !o.StartedAt.IsZero() || end != want {
		t.Errorf("verdict %v, started at %s, %+v", o.Verdict, o.StartedAt, end)
	}
	if len(requests) > 0 {
		t.Error("the target got a request")
	}
}
