package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A heartbeat that hangs until its limit is followed by the next one at once: see steadily.
func TestSlowWorkIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begin := time.Now()
		var starts []time.Duration
		steadily(ctx, heartbeatEvery, func(ctx context.Context) {
			starts = append(starts, time.Since(begin))
			switch len(starts) {
			case 1:
				sleep(ctx, renewTimeout)
			case 3:
				stop()
			}
		})
		if len(starts) != 3 || starts[1] != renewTimeout {
			t.Fatalf("it worked at %s, want the second time at %s", starts, renewTimeout)
		}
		if gap := starts[2] - starts[1]; gap < heartbeatEvery*9/10 || gap > heartbeatEvery*11/10 {
			t.Errorf("quick work was followed after %s, want about %s", gap, heartbeatEvery)
		}
	})
}
