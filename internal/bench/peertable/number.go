package main

import (
	"math"
	"slices"
	"strconv"
)

// text writes the median and, if asked for, the range of the rounds.
func (f figure) text(ranged bool) string {
	text := f.number(*f.Value)
	least, most := f.number(slices.Min(f.Rounds)), f.number(slices.Max(f.Rounds))
	if !ranged || least == most {
		return text
	}
	return text + " (" + least + "–" + most + ")"
}

// number writes a number, or more than which it is.
func (f figure) number(v float64) string {
	if f.Cap != 0 && v >= f.Cap {
		return "> " + number(f.Cap)
	}
	if f.Unit == "×" {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return number(v)
}

// number writes v with two or three significant digits.
func number(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 1000:
		rounded := strconv.FormatFloat(math.Round(v/10)*10, 'f', 0, 64)
		return rounded[:len(rounded)-3] + "," + rounded[len(rounded)-3:]
	case size >= 10 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 1:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
