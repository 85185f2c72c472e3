package forecast

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"
)

// mostBusy is how many of the busiest steps a forecast tells, and mostJobs how many jobs of each.
const (
	mostBusy = 10
	mostJobs = 5
)

// busyStep is what is known of the jobs that may start in a step.
type busyStep struct {
	jobs int64
	most []share // those with the most starts, and of those the lowest ids
}

type share struct {
	units int64
	job   uuid.UUID
}

func (s share) compare(other share) int {
	return cmp.Or(cmp.Compare(other.units, s.units), compareIDs(s.job, other.job))
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }

// insert adds an entry to a sorted list, which keeps the first mostJobs.
func insert[T any](list []T, entry T, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(list, entry, compare)
	if i == mostJobs {
		return list
	}
	return slices.Insert(list[:min(len(list), mostJobs-1)], i, entry)
}

// add counts jobs that each have a share of starts in the step. ids are the lowest ids of them.
func (s *busyStep) add(jobs, units int64, ids ...uuid.UUID) {
	s.jobs += jobs
	for _, id := range ids {
		entry := share{units, id}
		if len(s.most) == mostJobs && entry.compare(s.most[mostJobs-1]) > 0 {
			return // and the ids after it come even later
		}
		s.most = insert(s.most, entry, share.compare)
	}
}

// Busy is a step with many starts.
type Busy struct {
	At     time.Time
	Slots  int64
	Starts float64
	Jobs   int64   // how many jobs may start in it
	Most   []Share // the jobs with the most starts in it
}

// Share is how often a job is to be expected to start in a step.
type Share struct {
	Job    uuid.UUID
	Starts float64
}

// busiest returns the steps with the most starts, the busiest first.
func (b *Builder) busiest() []Busy {
	starts := b.starts[asIs]
	var steps []int
	for step, n := range starts {
		if n > 0 {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(x, y int) int { return cmp.Or(cmp.Compare(starts[y], starts[x]), cmp.Compare(x, y)) })
	list := []Busy{}
	for _, step := range steps[:min(len(steps), mostBusy)] {
		known := &b.busy[step]
		busy := Busy{
			At: b.window.at(step).UTC(), Slots: b.slots[step], Starts: rounded(starts[step]), Jobs: known.jobs,
		}
		for _, s := range known.most {
			busy.Most = append(busy.Most, Share{s.job, rounded(s.units)})
		}
		list = append(list, busy)
	}
	return list
}
