package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// faketime is the path of libfaketime on Debian and its derivatives.
const faketime = "/usr/lib/*/faketime/libfaketime.so.1"

// Clock is a clock that tests can step. The server that has Env in its environment uses it.
type Clock struct {
	Env  []string // for privatepg.Config
	t    testing.TB
	file string // contains the offset of the clock
}

// NewClock returns a clock that is right. The test fails if the machine has no libfaketime.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	found, _ := filepath.Glob(faketime) // fails only for a bad pattern
	if len(found) == 0 {
		t.Fatalf("this test needs libfaketime, and there is no %s: apt-get install libfaketime", faketime)
	}
	c := &Clock{t: t, file: filepath.Join(openDir(t), "offset")}
	c.Step(0)
	// Only the time of day is changed: timeouts and the times of files are not.
	c.Env = []string{
		"LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1", "NO_FAKE_STAT=1",
	}
	return c
}

// Step sets the clock ahead of this machine's by offset, for all processes of the server at once.
func (c *Clock) Step(offset time.Duration) {
	c.t.Helper()
	half := c.file + ".new"
	err := os.WriteFile(half, //nolint:gosec // for the server's user
		fmt.Appendf(nil, "%+d\n", int(offset.Seconds())), 0o644)
	if err == nil {
		err = os.Rename(half, c.file)
	}
	if err != nil {
		c.t.Fatalf("step the clock: %v", err)
	}
}
