package forecast

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// Jitters are the jitters that a forecast tries out: what if each recurring job had at least this one?
var Jitters = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// asIs is the row of starts with the jitter that the jobs have. The rows of Jitters follow it.
const asIs = 0

// mostGroups bounds the groups that a builder keeps before it counts their slots. They take some tens of megabytes.
const mostGroups = 50_000

// Builder makes a forecast. It is not safe for concurrent use.
type Builder struct {
	window  Window
	stopped func() error
	failed  error // of stopped
	work    int   // slots and steps since stopped was last asked

	plans  map[jobspec.Pattern]*Plan
	groups map[groupKey]*group
	most   int // groups

	jobs   int
	slots  []int64
	starts [][]int64 // by jitter, then by step, in units
	busy   []starters
	share  []int64 // of one job of the group that is being counted, by step
	shared []int   // the steps in which it has a share
}

// New returns a builder. It asks stopped now and then whether it is to give up, and why.
func New(w Window, stopped func() error) *Builder {
	n := w.Steps()
	b := &Builder{
		window: w, stopped: stopped, plans: map[jobspec.Pattern]*Plan{}, groups: map[groupKey]*group{},
		most:  mostGroups,
		slots: make([]int64, n), busy: make([]starters, n), share: make([]int64, n),
	}
	for range 1 + len(Jitters) {
		b.starts = append(b.starts, make([]int64, n))
	}
	return b
}

// Plan is a timetable that jobs share. Many jobs may be added to it.
type Plan struct {
	timetable *jobspec.Timetable
	from      time.Time // slots before it do not start in the window
}

// Plan returns the plan of a timetable, which is the same for timetables with equal patterns.
func (b *Builder) Plan(t *jobspec.Timetable) *Plan {
	from := b.window.From.Add(-max(t.Jitter(), Jitters[len(Jitters)-1]))
	pattern := t.Pattern(from)
	p := b.plans[pattern]
	if p == nil {
		p = &Plan{timetable: t, from: from}
		b.plans[pattern] = p
	}
	return p
}

// group is the jobs of a plan whose next slot is the same, or before the plan's from.
type group struct {
	*Plan
	first time.Time // slots before it have been claimed
	jobs  int64
	ids   []uuid.UUID // the lowest ids, in order
}

type groupKey struct {
	plan  *Plan
	first int64
}

// Add counts a job. next is its next slot as it is stored: its slots before that have been claimed. Of a one-shot it is
// the only slot.
func (b *Builder) Add(job uuid.UUID, p *Plan, next time.Time) {
	if p.timetable.OneShot() {
		b.once(job, next)
		return
	}
	if !next.Before(b.window.To) {
		return
	}
	next = jobspec.Later(next, p.from)
	key := groupKey{p, next.UnixNano()}
	g := b.groups[key]
	if g == nil {
		g = &group{Plan: p, first: next}
		b.groups[key] = g
	}
	g.jobs++
	g.ids = insert(g.ids, job, compareIDs)
	if len(b.groups) >= b.most {
		b.settle()
	}
}

// once counts a one-shot.
func (b *Builder) once(job uuid.UUID, at time.Time) {
	step := b.window.step(at.Sub(b.window.From))
	if step < 0 || step >= len(b.slots) || !at.Before(b.window.To) {
		return
	}
	b.jobs++
	b.AddRuns(job, step, 1)
}

// AddRuns counts n runs of a job that are due in a step of the window, with no jitter.
func (b *Builder) AddRuns(job uuid.UUID, step int, n int64) {
	b.slots[step] += n
	for _, row := range b.starts {
		row[step] += n * unit
	}
	b.busy[step].add(1, n*unit, job)
}

// settle counts the slots of all groups, and forgets the groups.
func (b *Builder) settle() {
	for _, g := range b.groups {
		if b.failed == nil {
			b.count(g)
		}
	}
	clear(b.groups)
	clear(b.plans)
}

// goesOn reports whether the builder is to go on, after it has done some work.
func (b *Builder) goesOn(work int) bool {
	if b.work += work; b.work > 4096 && b.failed == nil {
		b.work, b.failed = 0, b.stopped()
	}
	return b.failed == nil
}
