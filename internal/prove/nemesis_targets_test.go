package prove

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"punctual/internal/process"
)

// mortal is a target that is down at times: for less and for more than its jobs wait for it.
type mortal struct {
	port *deadPort

	mu    sync.Mutex
	lives []*Witness
}

// live lets the target be up.
func (m *mortal) live() {
	w := m.port.open()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lives = append(m.lives, w)
}

// requests returns what the target was sent in all its lives.
func (m *mortal) requests() (all []Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.lives {
		all = append(all, w.Requests()...)
	}
	return all
}

// dying returns jobs whose target is down at times, and their target.
func (b *besieged) dying(m mix) (*mortal, []process.JobSpec) {
	target := &mortal{port: newDeadPort(b.t)}
	target.live()
	jobs := many(5, "mortal", "http://"+target.port.addr+"/hook", m.everySecond())
	for i, j := range jobs {
		retry := map[string]any{"max_attempts": 4, "initial_backoff": "1s", "max_backoff": "3s"}
		if i%2 == 1 {
			retry = map[string]any{"max_attempts": 3}
		}
		maps.Copy(j, process.JobSpec{"retry": retry})
	}
	return target, jobs
}

// kill lets a target be down for a while.
func (b *besieged) kill(target *mortal, rng *rand.Rand) {
	down := []time.Duration{3 * time.Second, 6 * time.Second, 40 * time.Second}[rng.IntN(3)]
	defer b.fault("a target that is down for " + down.String())()
	target.port.close(target.lives[len(target.lives)-1])
	pass(b.t, down)
	target.live()
}

// and returns the facts with further requests, in the order of their arrival.
func (f Facts) and(more []Request) Facts {
	f.Requests = append(f.Requests, more...)
	slices.SortStableFunc(f.Requests, func(a, b Request) int { return a.At.Compare(b.At) })
	return f
}
