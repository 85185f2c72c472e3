package overview

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// batch is how many runs one transaction counts, so that it is soon over and holds no old snapshot. An hour with fewer
// runs of all tenants is small, an hour with more is large.
const batch = 100_000

// settling is how old a run is when it is first counted, by the time in its id. Most have ended by then.
const settling = time.Minute

// every is how often the present hour is counted on. A replica looks each minute, give or take a few seconds.
const every = 50 * time.Second

// ages are how long after its end an hour is counted anew. Runs end late, and slots are claimed late.
var ages = []time.Duration{5 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// surely is the age up to which every hour is counted anew. Later, a large hour is counted only if it is open.
const surely = time.Hour

// hour is how far an hour is counted: a row of counted_hours.
type hour struct {
	batch     int64 // as in Board
	begin     time.Time
	countedAt *time.Time // when the round that is shown was last brought up to date; nil: none is shown
	through   *uuid.UUID // the round has counted the runs up to this id; nil: none yet
	runs      int64      // how many that are
	unended   int64      // how many of these had not ended
	round     int32      // the latest round; it counts the hour from its beginning
	shown     int32      // the round that is shown; 0: none
	nextAt    *time.Time // when to count on; nil: never again
}

func (h hour) end() time.Time { return h.begin.Add(time.Hour) }

// first returns the lowest id that the hour's runs can have.
func (h hour) first() uuid.UUID { return domain.FirstRunID(h.begin) }

// over reports whether the round has counted all ids of the hour.
func (h hour) over() bool {
	return h.through != nil && pg.CompareIDs(*h.through, domain.FirstRunID(h.end())) >= 0
}

// task is what to count next: the runs with ids between two others.
type task struct {
	anew          bool // a new round begins
	after, before uuid.UUID
}

// task decides what to count next. A round that is under way goes on to its end. A small hour is counted anew each
// time, and so is right about runs that have ended since. Of a large hour only the runs of the last minute are counted
// while it lasts. An hour that is over is counted anew, and so is one whose count is of the future: the database's
// clock was set back.
func (h hour) task(now time.Time) task {
	t := task{before: domain.FirstRunID(jobspec.Earlier(h.end(), now.Add(-settling)))}
	ahead := h.countedAt != nil && h.countedAt.After(now)
	t.anew = h.round == h.shown && (ahead || h.over() || h.runs < h.batch)
	if t.after = h.first(); !t.anew && h.through != nil {
		t.after = *h.through
	}
	return t
}

// counted is the outcome of a task.
type counted struct {
	runs, unended int64
	last          *uuid.UUID // the highest id among them; nil: there are none
}

// add returns the hour after a task was done. oldest is the oldest slot that is due and not claimed, if there is one.
// A round that has reached the end of its task is shown from now on.
func (h hour) add(t task, c counted, now time.Time, oldest *time.Time) hour {
	if t.anew {
		h.round, h.runs, h.unended = h.round+1, 0, 0
	}
	h.runs, h.unended = h.runs+c.runs, h.unended+c.unended
	if c.runs >= h.batch {
		h.through, h.nextAt = c.last, &now
		return h
	}
	h.through, h.shown, h.countedAt = &t.before, h.round, &now
	h.nextAt = h.next(now, oldest)
	return h
}

// next returns when to count the hour again; nil: never. The older it is, the less often. A large hour is open while
// runs of it have not ended or slots of it are still due.
func (h hour) next(now time.Time, oldest *time.Time) *time.Time {
	if !h.over() {
		return new(now.Add(every))
	}
	open := h.unended > 0 || oldest != nil && oldest.Before(h.end())
	for _, age := range ages {
		at := h.end().Add(age)
		if !at.After(now) {
			continue
		}
		if age > surely && h.runs >= h.batch && !open {
			return nil
		}
		return &at
	}
	return nil
}
