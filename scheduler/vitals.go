package scheduler

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Path is what a replica lives by, besides what its callers ask for.
type Path string

// Each path is named for people.
const (
	PathHeartbeats Path = "heartbeats"
	PathClaims     Path = "claims of due work"
)

// Failing says since when a path has failed each time, and how it failed last.
type Failing struct {
	Since time.Time
	Err   error
}

// Vitals tell how a replica fares. Safe for concurrent use; the zero value is one that has not failed yet.
type Vitals struct {
	begun   atomic.Bool
	mu      sync.Mutex
	failing map[Path]Failing
}

// Begin records that the replica and its queues are registered.
func (v *Vitals) Begin() { v.begun.Store(true) }

// Begun reports whether they are: a job may name a queue only once a replica that serves it is registered.
func (v *Vitals) Begun() bool { return v.begun.Load() }

// Note records how a path ended at its last use: a single success ends a failure.
func (v *Vitals) Note(path Path, err error, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		delete(v.failing, path)
		return
	}
	f := Failing{now, err}
	if before, was := v.failing[path]; was {
		f.Since = before.Since
	}
	if v.failing == nil {
		v.failing = map[Path]Failing{}
	}
	v.failing[path] = f
}

// Failing returns the failure of a path that has lasted for a TTL. After as long, other replicas take over the runs of
// a replica whose heartbeat fails. One that failed once has not failed for so long.
func (v *Vitals) Failing(path Path, now time.Time) (f Failing, is bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f, is = v.failing[path]
	return f, is && now.Sub(f.Since) >= TTL
}
