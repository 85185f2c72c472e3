package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

func TestWhetherAMessageArrived(t *testing.T) {
	for _, c := range []struct {
		result wire.Result
		want   notice.Arrival
	}{
		{wire.Result{Status: 202, Sent: true}, notice.Delivered},
		{wire.Result{Status: 429, Reason: wire.ReasonHTTP4xx, Sent: true}, notice.PutOff},
		{wire.Result{Status: 503, Reason: wire.ReasonHTTP5xx, Sent: true, RetryAfter: time.Second}, notice.PutOff},
		{wire.Result{Status: 503, Reason: wire.ReasonHTTP5xx, Sent: true}, notice.Unknown},
		{wire.Result{Status: 404, Reason: wire.ReasonHTTP4xx, Sent: true}, notice.Unsent},
		{wire.Result{Status: 408, Reason: wire.ReasonHTTP4xx, Sent: true}, notice.Unknown},
		{wire.Result{Status: 400, Reason: wire.ReasonHTTP4xx, Sent: true}, notice.Refused},
		{wire.Result{Reason: wire.ReasonConnect}, notice.Unsent},
		{wire.Result{Reason: wire.ReasonTimeout, Sent: true}, notice.Unknown},
		{wire.Result{Cancelled: true, Sent: true}, notice.Unknown},
	} {
		if got := answerOf(c.result).Arrival; got != c.want {
			t.Errorf("%+v: %s, want %s", c.result, got, c.want)
		}
	}
}

// endless always has a batch of events to send, and a notice.
type endless struct {
	batches, notices atomic.Int32
	over             atomic.Bool
}

func (e *endless) Collect(context.Context) (bool, error) { return false, nil }

func (e *endless) CollectLifecycle(context.Context) (bool, error)                 { return true, nil }
func (e *endless) Answered(context.Context, notice.Outgoing, notice.Answer) error { return nil }

func (e *endless) Claim(_ context.Context, batches bool) (*notice.Outgoing, error) {
	if e.over.Load() {
		return nil, nil //nolint:nilnil // nothing is to be sent
	}
	m := notice.Outgoing{
		ID: uuid.New(), To: jobspec.Recipient{Format: jobspec.FormatJSON, URL: "http://192.0.2.1/"}, Body: []byte(`{}`),
	}
	if batches {
		m.Pipeline = notice.Lifecycle
		e.batches.Add(1)
	} else {
		e.notices.Add(1)
	}
	return &m, nil
}

// However many batches of events wait, and however slow their recipients are, most of what a replica sends at once is
// left to notices.
func TestBatchesOfEventsLeaveRoomToNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials, store, told := newGatedDials(t, true), newFakeStore(), new(endless)
		startConfig(t, store, Config{Client: dials.client, Notices: told})
		store.set(func() { store.asks = []string{ChoreLifecycle} })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if batches, notices := told.batches.Load(), told.notices.Load(); batches != 4 || notices != 16 {
			t.Errorf("%d batches and %d notices are under way, want 4 and 16", batches, notices)
		}
		told.over.Store(true)
		dials.letGo()
	})
}
