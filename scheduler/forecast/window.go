package forecast

import "time"

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
