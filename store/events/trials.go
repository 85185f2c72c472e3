package events

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The pause before an event is tried again of which only subscribers are left that fail alone. It doubles each time.
const (
	firstRest = time.Second
	lastRest  = time.Minute
)

// trials keeps what this replica knows of fan-outs that have failed. It forgets them with the process: then they are
// tried anew.
type trials struct {
	mu   sync.Mutex
	list map[uuid.UUID]*trial
}

type trial struct {
	size int         // of the next batch
	past []uuid.UUID // subscribers that have failed alone
	rest time.Duration
}

// of returns how many subscribers the next batch of an event comes to, and which it passes over.
func (t *trials) of(event uuid.UUID) (size int, past []uuid.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.list[event]; f != nil {
		return f.size, f.past
	}
	return batchSize, nil
}

// without leaves out the events on trial: only some of their subscribers fail, and their own turns say when these are
// tried again.
func (t *trials) without(resting []uuid.UUID) []uuid.UUID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(resting, func(event uuid.UUID) bool { return t.list[event] != nil })
}

// end ends the trial of an event that fails as a whole.
func (t *trials) end(event uuid.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, event)
}

// failed notes that a batch has failed: the next one is half as large. alone is true if it came to one subscriber only,
// which is passed over from then on. Otherwise the event pauses.
func (t *trials) failed(event, only uuid.UUID) (alone bool, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.at(event)
	switch {
	case only != uuid.Nil:
		f.past = append(f.past, only)
		return true, 0
	case f.size > 1:
		f.size /= 2
		return false, lockedPause
	}
	pause, f.rest = f.rest, min(2*f.rest, lastRest) // not even its subscribers can be read
	return false, pause
}

// at returns the trial of an event, perhaps a new one. The caller has locked t.
func (t *trials) at(event uuid.UUID) *trial {
	f := t.list[event]
	if f == nil {
		f = &trial{size: batchSize, rest: firstRest}
		if t.list == nil {
			t.list = map[uuid.UUID]*trial{}
		}
		t.list[event] = f
	}
	return f
}

// passed notes that a batch was written, so the next one may be larger again.
func (t *trials) passed(event uuid.UUID, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.list[event]; f != nil {
		f.size = min(batchSize, 2*f.size)
		if over {
			delete(t.list, event)
		}
	}
}

// rest returns how long an event rests. Then those that failed alone are tried again, one by one.
func (t *trials) rest(event uuid.UUID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.at(event)
	rest := f.rest
	f.size, f.past, f.rest = 1, nil, min(2*rest, lastRest)
	return rest
}
