package pg

import (
	"slices"
	"sync"
	"time"
)

// Soon is how near something must be due for the tick loop to be woken: it looks about once a second anyway.
const Soon = 1500 * time.Millisecond

// loops are the loops of this process that wait for work, by name. Each has a channel with room for one value: a loop
// that is asked twice before it looks has to look only once.
type loops struct {
	mu     sync.Mutex
	byName map[string]chan struct{}
}

func (l *loops) of(name string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] == nil {
		if l.byName == nil {
			l.byName = map[string]chan struct{}{}
		}
		l.byName[name] = make(chan struct{}, 1)
	}
	return l.byName[name]
}

// TickLoop is the name of the loop that claims. The others are chores.
const TickLoop = ""

// Wake wakes the process's tick loop: see Woken.
func (db *DB) Wake() { db.Ask(TickLoop) }

// Woken receives a value after this process wrote something that may be due at once.
func (db *DB) Woken() <-chan struct{} { return db.loops.of(TickLoop) }

// Ask asks the process's chores with these names to look for work: see Asked.
func (db *DB) Ask(chores ...string) {
	for _, name := range chores {
		select {
		case db.loops.of(name) <- struct{}{}:
		default: // a value is waiting already
		}
	}
}

// Asked receives a value after this process wrote work for a chore.
func (db *DB) Asked(chore string) <-chan struct{} { return db.loops.of(chore) }

// Wake wakes the process's tick loop after the commit: the transaction wrote something that is due at once or very
// soon.
func (tx *Tx) Wake() { tx.Ask(TickLoop) }

// Ask asks chores after the commit: the transaction wrote work for them. Other replicas learn of it from their
// heartbeats.
func (tx *Tx) Ask(chores ...string) {
	for _, name := range chores {
		if !slices.Contains(tx.asks, name) {
			tx.asks = append(tx.asks, name)
		}
	}
}
