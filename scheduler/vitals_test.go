package scheduler

import (
	"errors"
	"testing"
	"time"
)

func TestAPathFailsOnceItHasFailedForATTL(t *testing.T) {
	now := time.Now()
	var v Vitals
	failing := func() bool {
		_, is := v.Failing(PathClaims, now)
		return is
	}
	v.Note(PathClaims, errors.New("once"), now)
	if failing() {
		t.Error("a single failure counts")
	}
	now = now.Add(TTL)
	v.Note(PathClaims, errors.New("again"), now)
	if f, is := v.Failing(PathClaims, now); !is || f.Err.Error() != "again" || now.Sub(f.Since) != TTL {
		t.Errorf("%+v, %t", f, is)
	}
	if _, is := v.Failing(PathHeartbeats, now); is {
		t.Error("another path counts")
	}
	v.Note(PathClaims, nil, now)
	v.Note(PathClaims, errors.New("later"), now)
	if failing() {
		t.Error("a failure before a success counts")
	}
}
