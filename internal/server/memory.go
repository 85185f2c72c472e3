package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// headroom is how much a small heap may grow between two collections. Go lets a heap double, and so
	// collects one of 10 MB, which is all that a replica needs, many times a second in a burst.
	headroom = 96 << 20
	// mostPercent keeps an idle replica, whose heap is the smallest, below 60 MB resident.
	mostPercent = 400
)

// pacer adapts GOGC to the size of the heap after each collection.
type pacer struct {
	mu      sync.Mutex
	percent int
	before  int // what GOGC was
	stopped bool
}

// paceCollections lets a small heap grow further between two collections than a large one, until stop. A GOGC
// in the environment has the last word.
func paceCollections() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	p := &pacer{percent: mostPercent, before: debug.SetGCPercent(mostPercent)}
	p.watch()
	return p.stop
}

// watch has adapt called after the next collection, which finds nobody using the witness.
func (p *pacer) watch() {
	runtime.AddCleanup(new([64]byte), func(p *pacer) { p.adapt() }, p)
}

func (p *pacer) adapt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if percent := gcPercent(live[0].Value.Uint64()); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}
	p.watch()
}

func (p *pacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	debug.SetGCPercent(p.before)
}

// gcPercent is GOGC for so many bytes that live: headroom, and from there on as large as the heap, Go's own
// 100. It goes in steps of 10, so that a heap that hardly changes needs no adapting.
func gcPercent(live uint64) int {
	percent := headroom * 100 / max(live, 1) / 10 * 10
	return int(min(max(percent, 100), mostPercent))
}
