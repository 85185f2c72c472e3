package bench

import (
	"math"
	"slices"
	"strconv"
)

// A scale maps numbers to positions along one side of a chart.
type scale struct {
	log      bool
	low, top float64 // the numbers at the ends
	from, to float64 // the ends, in pixels
	ticks    []float64
}

// scale fits an axis around values.
func (a axis) scale(values []float64, from, to float64) scale {
	s := scale{log: a.Log, from: from, to: to}
	values = slices.DeleteFunc(values, func(v float64) bool { return !s.has(v) })
	switch {
	case len(values) == 0:
		s.low, s.top = 1, 10
		s.ticks = []float64{1, 10}
	case a.Log && a.AtPoints:
		s.ticks = slices.Compact(slices.Sorted(slices.Values(values)))
		s.low, s.top = s.ticks[0], s.ticks[len(s.ticks)-1]
		if s.low == s.top {
			s.top *= 10
		}
	case a.Log:
		s.low, s.top = math.Pow10(floor10(slices.Min(values))), math.Pow10(ceil10(slices.Max(values)))
		if s.low == s.top {
			s.top *= 10
		}
		for tick := s.low; tick <= s.top; tick *= 10 {
			s.ticks = append(s.ticks, tick)
		}
	default:
		step := step(slices.Max(values))
		s.top = step * max(math.Ceil(slices.Max(values)/step), 1)
		for i := 0; float64(i)*step <= s.top; i++ {
			s.ticks = append(s.ticks, float64(i)*step)
		}
	}
	return s
}

func floor10(v float64) int { return int(math.Floor(math.Log10(v))) }
func ceil10(v float64) int  { return int(math.Ceil(math.Log10(v))) }

// step returns the distance between ticks, for about five ticks up to top: 1, 2 or 5 times a power of ten.
func step(top float64) float64 {
	if top <= 0 {
		return 1
	}
	unit := math.Pow10(floor10(top / 5))
	for _, n := range []float64{1, 2, 5} {
		if top/(n*unit) <= 5 {
			return n * unit
		}
	}
	return 10 * unit
}

// has reports whether the scale can place a number: a logarithmic scale has no place for zero and less.
func (s scale) has(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	return v > 0 || v == 0 && !s.log
}

func (s scale) at(v float64) float64 {
	share := (v - s.low) / (s.top - s.low)
	if s.log {
		share = math.Log(v/s.low) / math.Log(s.top/s.low)
	}
	return s.from + share*(s.to-s.from)
}

// short formats a number for people: 12.5, 500, 10 k, 2.5 M.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(v/unit.size, 'g', 4, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
