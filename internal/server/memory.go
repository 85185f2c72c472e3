package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// headroom is how many bytes a small heap may grow between two collections. By default Go collects when the heap has
	// doubled. A replica needs only 10 MB, and in a burst Go would collect that many times a second.
	headroom = 96 << 20
	// mostPercent keeps an idle replica, whose heap is the smallest, below 60 MB resident.
	mostPercent = 400
)

// settled is how long after a start its memory is given back. Describing the API and preparing statements need several
// times what they leave in use, and an idle replica would keep that.
const settled = 10 * time.Second

// pacer adapts GOGC to the size of the heap after each collection.
type pacer struct {
	mu      sync.Mutex
	percent int
	before  int // GOGC before it was changed
	stopped bool
}

// paceCollections lets a small heap grow more, in proportion, between two collections than a large one, until stop. If
// the environment sets GOGC, it changes nothing.
func paceCollections() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	p := &pacer{percent: mostPercent, before: debug.SetGCPercent(mostPercent)}
	p.watch()
	return p.stop
}

// watch arranges for adapt to run after the next collection, which finds that nothing refers to the allocated block.
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

// gcPercent returns GOGC for a number of live bytes. It allows headroom to grow; when the heap is larger than headroom,
// it is Go's own default of 100. It goes in steps of 10, so that a heap that hardly changes needs no adapting.
func gcPercent(live uint64) int {
	percent := headroom * 100 / max(live, 1) / 10 * 10
	return int(min(max(percent, 100), mostPercent))
}
