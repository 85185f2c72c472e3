package forecast

import (
	"math"
	"slices"
	"time"
)

// Window is the time that a forecast is about: [From, To), in steps from From on. The last step may be shorter.
type Window struct {
	From, To time.Time
	Step     time.Duration
}

// Steps returns how many steps the window has.
func (w Window) Steps() int {
	if span := w.To.Sub(w.From); span > 0 {
		return int((span + w.Step - 1) / w.Step)
	}
	return 0
}

// at returns when a step begins.
func (w Window) at(step int) time.Time { return w.From.Add(time.Duration(step) * w.Step) }

// bounds returns where a step begins and ends, counted from the window's beginning.
func (w Window) bounds(step int) (from, to time.Duration) {
	from = time.Duration(step) * w.Step
	return from, min(from+w.Step, w.To.Sub(w.From))
}

// step returns the step that an instant, counted from the window's beginning, lies in. Before the window it is
// negative.
func (w Window) step(at time.Duration) int {
	step := at / w.Step
	if at < 0 && at%w.Step != 0 {
		step--
	}
	return int(step)
}

// Forecast is what is to come in a window.
type Forecast struct {
	Jobs    int        // jobs with a slot in the window
	Total   int64      // slots
	Slots   []int64    // by step
	Starts  []float64  // by step: expected starts, with the jitter that the jobs have
	Busiest []BusyStep // whose jobs have no names yet
	Spread  []Peak     // as it is, then for each of Jitters
}

// Peak is the step with the most starts, and how many these are, if each recurring job had at least a jitter.
type Peak struct {
	Jitter time.Duration // 0: as it is
	At     time.Time
	Starts float64
}

// Forecast returns the forecast for the jobs that were added. The builder is done then.
func (b *Builder) Forecast() (Forecast, error) {
	b.settle()
	if b.failed != nil {
		return Forecast{}, b.failed
	}
	f := Forecast{Jobs: b.jobs, Slots: b.slots, Busiest: b.busiest()}
	for _, n := range b.slots {
		f.Total += n
	}
	for _, units := range b.starts[asIs] {
		f.Starts = append(f.Starts, rounded(units))
	}
	for row, starts := range b.starts {
		peak := Peak{At: b.window.From.UTC()}
		if row != asIs {
			peak.Jitter = Jitters[row-1]
		}
		if len(starts) > 0 {
			most := slices.Max(starts)
			peak.At, peak.Starts = b.window.at(slices.Index(starts, most)).UTC(), rounded(most)
		}
		f.Spread = append(f.Spread, peak)
	}
	return f, nil
}

// rounded returns a number of starts to three decimals.
func rounded(units int64) float64 { return math.Round(float64(units)/unit*1000) / 1000 }
