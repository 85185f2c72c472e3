package server

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestSmallHeapsMayGrowFurther(t *testing.T) {
	for _, c := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing lives", 0, 400},
		{"an idle replica", 8 << 20, 400},
		{"a burst on a few worker slots", 48 << 20, 200},
		{"as much as the headroom", 96 << 20, 100},
		{"ten thousand requests in flight", 300 << 20, 100},
	} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%s: GOGC is %d, want %d", c.name, got, c.want)
		}
	}
}

// GOGC belongs to the whole process, so this test does not run in parallel.
func TestCollectionsArePacedUntilStopped(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(150)
	defer debug.SetGCPercent(before)
	stop := paceCollections()
	ballast := make([]byte, 2*headroom)
	for deadline := time.Now().Add(30 * time.Second); currentPercent() != 100; {
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d with %d MB live, want 100", currentPercent(), len(ballast)>>20)
		}
		runtime.GC()
	}
	runtime.KeepAlive(ballast)
	stop()
	if got := currentPercent(); got != 150 {
		t.Errorf("GOGC is %d afterwards, want the 150 of before", got)
	}
	t.Setenv("GOGC", "70")
	defer paceCollections()()
	if got := currentPercent(); got != 150 {
		t.Errorf("GOGC was set to %d though the environment sets it", got)
	}
}

func currentPercent() int {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}
