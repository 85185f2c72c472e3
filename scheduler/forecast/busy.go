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

// starters is what is known of the jobs that may start in a step.
type starters struct {
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
func (s *starters) add(jobs, units int64, ids ...uuid.UUID) {
	s.jobs += jobs
	for _, id := range ids {
		entry := share{units, id}
		if len(s.most) == mostJobs && entry.compare(s.most[mostJobs-1]) > 0 {
			return // and the ids after it come even later
		}
		s.most = insert(s.most, entry, share.compare)
	}
}

// BusyStep is a step with many starts, and the jobs that start in it.
type BusyStep struct {
	At     time.Time `json:"at" doc:"When the step begins."`
	Slots  int       `json:"slots" doc:"Slots in the step." example:"60112"`
	Starts float64   `json:"starts" doc:"Expected starts in the step." example:"60112"`
	Jobs   int       `json:"jobs" doc:"How many jobs may start in the step." example:"60098"`
	Most   []BusyJob `json:"most" doc:"Up to five jobs: those with the most expected starts in the step, and of equal ones those with the lowest ids."`
}

// BusyJob is a job that starts in a busy step.
type BusyJob struct {
	ID     uuid.UUID `json:"id" format:"uuid" doc:"Id of the job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Name   string    `json:"name" doc:"Its name." example:"daily-invoice-gen"`
	Tenant string    `json:"tenant" doc:"Its tenant." example:"default"`
	Starts float64   `json:"starts" doc:"How often it is expected to start in the step." example:"4"`
}

// busiest returns the steps with the most starts, the busiest first.
func (b *Builder) busiest() []BusyStep {
	starts := b.starts[asIs]
	var steps []int
	for step, n := range starts {
		if n > 0 {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(x, y int) int { return cmp.Or(cmp.Compare(starts[y], starts[x]), cmp.Compare(x, y)) })
	list := []BusyStep{}
	for _, step := range steps[:min(len(steps), mostBusy)] {
		known := &b.busy[step]
		busy := BusyStep{
			At: b.window.at(step).UTC(), Slots: int(b.slots[step]), Starts: rounded(starts[step]), Jobs: int(known.jobs),
		}
		for _, s := range known.most {
			busy.Most = append(busy.Most, BusyJob{ID: s.job, Starts: rounded(s.units)})
		}
		list = append(list, busy)
	}
	return list
}
