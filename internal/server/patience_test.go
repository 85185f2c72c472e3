package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A step that takes longer to fail than the start waits is tried again all the same. Without a wait it is not.
func TestAStepThatTakesLongToFailIsTriedAgain(t *testing.T) {
	for wait, want := range map[time.Duration]int{100 * time.Millisecond: 2, 0: 1} {
		synctest.Test(t, func(t *testing.T) {
			c, tries := Config{DatabaseWait: wait, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, 0
			err := c.insist(context.Background(), func() error {
				tries++
				time.Sleep(3 * time.Second)
				return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			})
			if tries != want || err == nil {
				t.Errorf("with a wait of %s it is tried %d times, want %d (%v)", wait, tries, want, err)
			}
		})
	}
}
