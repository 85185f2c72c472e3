package domain

import "time"

// Overlapping counts a job's slots of the last hour, or its six newest if those reach further back, and those of them
// that were skipped, or whose run was replaced, because the run before had not ended.
type Overlapping struct {
	Slots, Skipped int
	Newest         int        // how many of the three newest were skipped
	Oldest         *time.Time // the oldest that was skipped; nil: none
}

// most reports whether at least two of three slots were skipped.
func (o Overlapping) most() bool { return o.Slots >= 3 && 3*o.Skipped >= 2*o.Slots }

// Steady reports whether most slots have been skipped for an hour.
func (o Overlapping) Steady(now time.Time) bool {
	return o.most() && o.Oldest != nil && !o.Oldest.After(now.Add(-time.Hour))
}

// Over reports whether that is over: most slots are not skipped any more, or the three newest all ran.
func (o Overlapping) Over() bool { return !o.most() || o.Newest == 0 }
