package letters

import (
	"testing"
	"time"
)

func TestPaceFollowsHowLongBatchesTake(t *testing.T) {
	const quick, middling, slow = quickBatch / 2, (quickBatch + slowBatch) / 2, 2 * slowBatch
	for _, c := range []struct {
		name  string
		after []time.Duration // how long full batches took
		want  int
	}{
		{"the first batch", nil, 25},
		{"a quick one is followed by twice as many jobs", []time.Duration{quick}, 50},
		{"but by 100 at most", []time.Duration{quick, quick, quick}, 100},
		{"one that is neither quick nor slow by as many", []time.Duration{quick, middling}, 50},
		{"a slow one by half", []time.Duration{quick, slow}, 25},
		{"and by one at least", []time.Duration{slow, slow, slow, slow, slow, slow}, 1},
		{"it grows again", []time.Duration{slow, slow, slow, slow, slow, quick, quick}, 4},
	} {
		var p pace
		for _, held := range c.after {
			p.note(p.next(), held)
		}
		if n := p.next(); n != c.want {
			t.Errorf("%s: %d jobs, want %d", c.name, n, c.want)
		}
	}
	var p pace
	p.note(p.next()-1, quick)
	if n := p.next(); n != firstBatch {
		t.Errorf("after the last, smaller batch of an operation: %d jobs, want %d", n, firstBatch)
	}
	p.note(2, slow)
	if n := p.next(); n != 1 {
		t.Errorf("after a slow batch of two: %d jobs, want 1", n)
	}
}
