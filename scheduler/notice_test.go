package scheduler

import (
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
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
