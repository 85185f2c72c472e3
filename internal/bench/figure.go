package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Figure is one measured figure.
type Figure struct {
	Benchmark string    `json:"benchmark"`
	Name      string    `json:"name"`
	Unit      string    `json:"unit"`
	Value     float64   `json:"-"` // the median of the rounds; NaN: could not be measured
	Rounds    []float64 `json:"-"` // in the order in which they were measured
	Target    *Goal     `json:"target,omitempty"`
	Cap       float64   `json:"cap,omitempty"`    // no longer was waited: a round of this value means "more"
	Absent    string    `json:"absent,omitempty"` // why it could not be measured
}

// Goal is the target of a figure: at most, or at least, a value.
type Goal struct {
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
}

func atLeast(bound float64) *Goal { return &Goal{AtLeast: &bound} }
func atMost(bound float64) *Goal  { return &Goal{AtMost: &bound} }

// MarshalJSON omits the value and the rounds that could not be measured, because JSON has no NaN.
func (f Figure) MarshalJSON() ([]byte, error) {
	type plain Figure
	out := struct {
		plain
		Value   *float64  `json:"value,omitempty"`
		Rounds  []float64 `json:"rounds,omitempty"`
		Reached *bool     `json:"reached,omitempty"`
	}{plain: plain(f)}
	if f.Absent == "" {
		value, reached := round3(f.Value), f.reached()
		out.Value = &value
		for _, r := range f.Rounds {
			if !math.IsNaN(r) {
				out.Rounds = append(out.Rounds, round3(r))
			}
		}
		if f.Target != nil {
			out.Reached = &reached
		}
	}
	return json.Marshal(out)
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

// reached reports whether the figure meets its target. It is true if the figure has no target.
func (f Figure) reached() bool {
	switch {
	case f.Target == nil:
		return true
	case f.Target.AtLeast != nil:
		return f.Value >= *f.Target.AtLeast
	default:
		return f.Value <= *f.Target.AtMost
	}
}

// verdict says whether the target was reached and, if not, by how much it was missed.
func (f Figure) verdict() string {
	switch {
	case f.Absent != "":
		return f.Absent
	case f.Cap != 0 && f.Value >= f.Cap:
		return "or more: no longer was waited"
	case f.Target == nil:
		return ""
	case f.reached():
		return "reached"
	case f.Target.AtLeast != nil:
		return fmt.Sprintf("missed by %.0f %%", 100*(1 - f.Value / *f.Target.AtLeast))
	case *f.Target.AtMost == 0:
		return "missed"
	case f.Value >= 2**f.Target.AtMost:
		return fmt.Sprintf("missed, %s times as much", number(f.Value / *f.Target.AtMost))
	default:
		return fmt.Sprintf("missed by %.0f %%", 100*(f.Value / *f.Target.AtMost - 1))
	}
}

func (t *Goal) String() string {
	switch {
	case t == nil:
		return ""
	case t.AtLeast != nil:
		return "≥ " + number(*t.AtLeast)
	default:
		return "≤ " + number(*t.AtMost)
	}
}

// number writes v with three significant digits, or with all digits before the point.
func number(v float64) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case size >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// row writes one row of the table. Column widths are fixed, so that rows line up while the table grows.
func row(out io.Writer, benchmark, name, value, unit, target, verdict string) {
	fmt.Fprintf(out, "%-10s  %-48s  %10s %-12s  %-9s  %s\n", benchmark, name, value, unit, target, verdict)
}

// median returns the median of the values that could be measured; NaN if there are none.
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value at the nearest rank. The median of an even number of values is the mean of the middle two.
// It returns NaN if there are no values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	n := len(sorted)
	switch {
	case n == 0:
		return math.NaN()
	case q == 0.5 && n%2 == 0:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	default:
		return sorted[min(max(int(math.Ceil(q*float64(n)))-1, 0), n-1)]
	}
}
