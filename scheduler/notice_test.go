package scheduler

import (
	"testing"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/notice"
)

func TestWhetherAMessageArrived(t *testing.T) {
	for _, c := range []struct {
		result delivery.Result
		want   notice.Arrival
	}{
		{delivery.Result{Status: 202, Sent: true}, notice.Delivered},
		{delivery.Result{Status: 429, Reason: delivery.ReasonHTTP4xx, Sent: true}, notice.PutOff},
		{delivery.Result{Status: 503, Reason: delivery.ReasonHTTP5xx, Sent: true, RetryAfter: time.Second}, notice.PutOff},
		{delivery.Result{Status: 503, Reason: delivery.ReasonHTTP5xx, Sent: true}, notice.Unknown},
		{delivery.Result{Status: 404, Reason: delivery.ReasonHTTP4xx, Sent: true}, notice.Unsent},
		{delivery.Result{Status: 408, Reason: delivery.ReasonHTTP4xx, Sent: true}, notice.Unknown},
		{delivery.Result{Status: 400, Reason: delivery.ReasonHTTP4xx, Sent: true}, notice.Refused},
		{delivery.Result{Reason: delivery.ReasonConnect}, notice.Unsent},
		{delivery.Result{Reason: delivery.ReasonTimeout, Sent: true}, notice.Unknown},
		{delivery.Result{Cancelled: true, Sent: true}, notice.Unknown},
	} {
		if got := answerOf(c.result).Arrival; got != c.want {
			t.Errorf("%+v: %s, want %s", c.result, got, c.want)
		}
	}
}
