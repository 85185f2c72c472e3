package command

import (
	"testing"
	"time"
)

// The default grace shrinks to a shorter drain timeout, so that a deployment with a short drain timeout still starts.
func TestTheDefaultGraceIsWithinTheDrain(t *testing.T) {
	minute := time.Minute
	for _, test := range []struct {
		drain time.Duration
		given *time.Duration
		want  time.Duration
	}{
		{25 * time.Second, nil, defaultGrace},
		{2 * time.Second, nil, 2 * time.Second},
		{0, nil, 0},
		{time.Hour, &minute, minute},
	} {
		c := Serve{ShutdownGrace: test.given}
		c.DrainTimeout = test.drain
		if got := c.grace(); got != test.want {
			t.Errorf("with a drain of %s and %v given the grace is %s, want %s", test.drain, test.given, got, test.want)
		}
	}
}
