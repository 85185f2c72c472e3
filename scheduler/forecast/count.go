package forecast

import (
	"math"
	"math/bits"
	"time"

	"punctual/scheduler/jobspec"
)

// unit is one start. Shares of starts are whole units, so that sums do not depend on the order of the jobs. A day of
// slots each second of ten million jobs fits.
const unit = 1_000_000

// count counts the slots of a group.
func (b *Builder) count(g *group) {
	var slots int64
	if period := g.timetable.Period(); period > 0 && period < b.window.Step {
		slots = b.countDense(g, period)
	} else {
		slots = b.countEach(g)
	}
	if slots > 0 {
		b.jobs += int(g.jobs)
	}
	for _, step := range b.shared {
		share := b.share[step]
		b.starts[asIs][step] += share * g.jobs
		b.busy[step].add(g.jobs, share, g.ids...)
		b.share[step] = 0
	}
	b.shared = b.shared[:0]
}

// countEach counts slot by slot. It returns how many slots a job of the group has in the window.
func (b *Builder) countEach(g *group) (slots int64) {
	const none = math.MinInt64
	at := time.Duration(none) // the slot before, counted from the window's beginning
	for slot := range g.timetable.Between(g.first, endOfTime) {
		next := slot.Sub(b.window.From)
		if at != none {
			slots += b.countOne(g, at, next-at)
		}
		if at = next; !slot.Before(b.window.To) || !b.goesOn(1) {
			return slots
		}
	}
	if at != none {
		slots += b.countOne(g, at, math.MaxInt64)
	}
	return slots
}

// endOfTime is later than all slots.
var endOfTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

// countOne counts a slot, by the gap to the next one. It returns 1 if the slot is in the window, and else 0.
func (b *Builder) countOne(g *group, at, gap time.Duration) int64 {
	for row := range b.starts {
		b.spread(g, row, at, jobspec.Spread(jitterOf(g, row), gap))
	}
	if at < 0 {
		return 0
	}
	b.slots[b.window.step(at)] += g.jobs
	return 1
}

// jitterOf returns the jitter of a group's jobs in a row of starts.
func jitterOf(g *group, row int) time.Duration {
	if row == asIs {
		return g.timetable.Jitter()
	}
	return max(g.timetable.Jitter(), Jitters[row-1])
}

// spread adds the start of a slot to a row, evenly over a time from the slot on.
func (b *Builder) spread(g *group, row int, at, over time.Duration) {
	step := max(b.window.step(at), 0)
	if over == 0 {
		if at >= 0 {
			b.add(g, row, step, unit)
		}
		return
	}
	from, _ := b.window.bounds(step)
	done := part(max(from-at, 0), over)
	for ; step < len(b.slots) && done < unit; step++ {
		_, to := b.window.bounds(step)
		upTo := part(to-at, over)
		b.add(g, row, step, upTo-done)
		done = upTo
	}
}

// part returns the share of a start in the beginning of the time that it is spread over.
func part(beginning, over time.Duration) int64 {
	if beginning >= over {
		return unit
	}
	if beginning <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(beginning), unit)
	share, _ := bits.Div64(hi, lo, uint64(over))
	return int64(share)
}

// add adds a share of the start of each job of a group to a step of a row.
func (b *Builder) add(g *group, row, step int, share int64) {
	if row != asIs {
		b.starts[row][step] += share * g.jobs
		return
	}
	if share == 0 {
		return
	}
	if b.share[step] == 0 {
		b.shared = append(b.shared, step)
	}
	b.share[step] += share
}

// countDense counts the slots of an interval of less than a step, step by step. Starts move from a step to the next
// only where the last slot before the boundary is spread beyond it: a slot is spread over half a period at most.
func (b *Builder) countDense(g *group, period time.Duration) (slots int64) {
	first, _ := g.timetable.Next(g.first.Add(-1), nil)
	origin := first.At.Sub(b.window.From)
	before := func(at time.Duration) int64 { // slots before an instant
		return max(int64((at-origin+period-1)/period), 0)
	}
	for step := range b.slots {
		from, to := b.window.bounds(step)
		n, sofar := before(to)-before(from), before(to)
		slots += n
		b.slots[step] += n * g.jobs
		for row := range b.starts {
			over := jobspec.Spread(jitterOf(g, row), period)
			b.add(g, row, step, n*unit+spilt(origin, period, over, from, before(from))-spilt(origin, period, over, to, sofar))
		}
		if !b.goesOn(1) {
			break
		}
	}
	return slots
}

// spilt returns how much of the start of the last slot before a boundary lies beyond it. There are n slots before it.
func spilt(origin, period, over, boundary time.Duration, n int64) int64 {
	last := origin + time.Duration(n-1)*period
	if n == 0 || last+over <= boundary {
		return 0
	}
	return unit - part(boundary-last, over)
}
