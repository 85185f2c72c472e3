package forecast

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// plainly works a forecast out slot by slot and job by job, with fractions.
type plainly struct {
	Window
	slots  []int64
	starts [][]float64
	jobs   int
	by     []map[uuid.UUID]float64 // expected starts by step and job
}

func plain(t testing.TB, w Window, jobs []job) *plainly {
	t.Helper()
	p := &plainly{Window: w, slots: make([]int64, w.Steps())}
	for range p.slots {
		p.by = append(p.by, map[uuid.UUID]float64{})
	}
	for range 1 + len(Jitters) {
		p.starts = append(p.starts, make([]float64, w.Steps()))
	}
	for _, j := range jobs {
		p.add(j, j.timetable(t))
	}
	return p
}

func (p *plainly) add(j job, table *jobspec.Timetable) {
	var slots []time.Time
	if table.OneShot() {
		slots = []time.Time{j.next}
	} else {
		slots = slices.Collect(table.Between(j.next, p.To))
	}
	counted := false
	for _, at := range slots {
		if !at.Before(p.From) && at.Before(p.To) {
			counted = true
			p.slots[int(at.Sub(p.From)/p.Step)]++
		}
		if table.OneShot() && at.Before(p.From) {
			continue
		}
		next, more := table.Next(at, nil)
		for row := range p.starts {
			over := table.Jitter()
			if row > 0 && !table.OneShot() {
				over = max(over, Jitters[row-1])
			}
			if more {
				over = min(over, next.At.Sub(at)/2)
			}
			p.start(j.id, row, at, over)
		}
	}
	if counted {
		p.jobs++
	}
}

// start spreads a start over a time from a slot on.
func (p *plainly) start(job uuid.UUID, row int, slot time.Time, over time.Duration) {
	at := slot.Sub(p.From)
	for step := max(int(at/p.Step)-1, 0); step < len(p.slots); step++ {
		from := time.Duration(step) * p.Step
		to := min(from+p.Step, p.To.Sub(p.From))
		if from > at+over {
			return
		}
		share := 0.0
		if over > 0 {
			share = max(float64(min(to, at+over)-max(from, at))/float64(over), 0)
		} else if at >= from && at < to {
			share = 1
		}
		p.starts[row][step] += share
		if row == 0 && share > 0 {
			p.by[step][job] += share
		}
	}
}

// near reports whether two numbers of starts are the same but for rounding.
func near(a, b float64) bool { return math.Abs(a-b) < 0.01 }

// check compares a forecast with the plain one.
func (p *plainly) check(t interface{ Fatalf(string, ...any) }, f Forecast) {
	total := int64(0)
	for step, n := range p.slots {
		total += n
		if f.Slots[step] != n || !near(f.Starts[step], p.starts[0][step]) {
			t.Fatalf("step %d: %d slots and %g starts, want %d and %g",
				step, f.Slots[step], f.Starts[step], n, p.starts[0][step])
		}
	}
	if f.Total != total || f.Jobs != p.jobs {
		t.Fatalf("%d slots of %d jobs, want %d of %d", f.Total, f.Jobs, total, p.jobs)
	}
	for row, peak := range f.Spread {
		most := slices.Max(p.starts[row])
		at := int(peak.At.Sub(p.From) / p.Step)
		if !near(peak.Starts, most) || !near(p.starts[row][at], most) {
			t.Fatalf("with a jitter of %s the peak is %g at %s, want %g", peak.Jitter, peak.Starts, peak.At, most)
		}
	}
	p.checkBusiest(t, f.Busiest)
}

func (p *plainly) checkBusiest(t interface{ Fatalf(string, ...any) }, busiest []BusyStep) {
	sorted := slices.DeleteFunc(slices.Clone(p.starts[0]), func(n float64) bool { return n == 0 })
	slices.SortFunc(sorted, func(a, b float64) int { return cmp.Compare(b, a) })
	if len(busiest) != min(len(sorted), mostBusy) {
		t.Fatalf("%d busy steps of %d", len(busiest), len(sorted))
	}
	for i, b := range busiest {
		step := int(b.At.Sub(p.From) / p.Step)
		if !near(b.Starts, sorted[i]) || !near(b.Starts, p.starts[0][step]) || int64(b.Slots) != p.slots[step] {
			t.Fatalf("busy step %d is %+v, want %g starts and %d slots", i, b, sorted[i], p.slots[step])
		}
		var shares []BusyJob
		for job, starts := range p.by[step] {
			shares = append(shares, BusyJob{ID: job, Starts: starts})
		}
		slices.SortFunc(shares, func(a, b BusyJob) int {
			if !near(a.Starts, b.Starts) {
				return cmp.Compare(b.Starts, a.Starts)
			}
			return bytes.Compare(a.ID[:], b.ID[:])
		})
		if b.Jobs != len(shares) || len(b.Most) != min(len(shares), mostJobs) {
			t.Fatalf("busy step %s has %d jobs and tells %d, want %d", b.At, b.Jobs, len(b.Most), len(shares))
		}
		for k, s := range b.Most {
			if !near(s.Starts, shares[k].Starts) || !near(s.Starts, p.by[step][s.ID]) {
				t.Fatalf("busy step %s: job %d is %+v, want %+v", b.At, k, s, shares[k])
			}
		}
	}
}
