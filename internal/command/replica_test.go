package command

import (
	"strings"
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

func TestDevKeepsItsDataWhereItsPostgresMayGo(t *testing.T) {
	if dir, err := devDir(0); err != nil || dir != "/var/lib/punctual-dev" {
		t.Errorf("root's is %q, error %v", dir, err)
	}
	t.Setenv("HOME", "/home/alice")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := devDir(1000); err != nil || !strings.HasPrefix(dir, "/home/alice/") ||
		!strings.HasSuffix(dir, "punctual-dev") {
		t.Errorf("a user's is %q, error %v", dir, err)
	}
}
