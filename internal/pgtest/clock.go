package pgtest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// Clock is a clock that tests can step. The server that has Env in its environment uses it.
type Clock struct {
	Env  []string // for privatepg.Config
	t    testing.TB
	file string // contains the offset of the clock
}

// NewClock compiles the library that Env preloads, with gcc or $CC, and returns a clock that is right.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	library := compile(t, "clock", clockSource)
	c := &Clock{t: t, file: filepath.Join(filepath.Dir(library), "ahead")}
	c.Step(0)
	c.Env = []string{"LD_PRELOAD=" + library, "CLOCK_AHEAD=" + c.file}
	return c
}

// Step sets the clock ahead of this machine's by offset, for all processes of the server at once. Only the time of day
// is changed: timeouts and the times of files are not.
func (c *Clock) Step(offset time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // for the server's user
	if err == nil {
		defer f.Close()
		// In its place, as the processes have mapped it.
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(offset.Seconds()))), 0)
	}
	if err != nil {
		c.t.Fatalf("step the clock: %v", err)
	}
}
