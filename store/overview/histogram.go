package overview

import (
	"math"
	"strconv"
	"strings"

	"punctual/store/pg"
)

// finest is how many classes of a histogram lie between a duration and twice that duration. So a class is 19 % wide,
// and its middle is within 10 % of every duration in it.
const finest = 4

// classes is how many classes a histogram has at most. The last one begins at 41 days.
const classes = 128

// histogram counts durations. Element n counts those from 2^(n/finest) ms on; the first counts shorter ones too.
// Histograms of hours add up to that of a day, which percentiles do not.
type histogram []int32

// classOf is the SQL expression for the class of an interval; null for null.
func classOf(interval string) string {
	perDoubling := strconv.FormatFloat(finest/math.Ln2, 'f', -1, 64)
	return `CASE WHEN ` + interval + ` IS NOT NULL THEN least(` + strconv.Itoa(classes-1) +
		`, floor(ln(greatest(1, date_part('epoch', ` + interval + `) * 1000)) * ` + perDoubling + `))::integer END`
}

// add counts n durations of a class.
func (h *histogram) add(class int, n int32) {
	for len(*h) <= class {
		*h = append(*h, 0)
	}
	(*h)[class] += n
}

// merge adds another histogram.
func (h *histogram) merge(other histogram) {
	for class, n := range other {
		h.add(class, n)
	}
}

// count returns how many durations there are.
func (h histogram) count() (n int64) {
	for _, in := range h {
		n += int64(in)
	}
	return n
}

// quantile returns the duration, in seconds, that a share of all durations does not exceed: the middle of its class. It
// is nil if there are no durations.
func (h histogram) quantile(share float64) *float64 {
	rank, below := int64(math.Ceil(share*float64(h.count()))), int64(0)
	for class, n := range h {
		if below += int64(n); below >= rank && n > 0 {
			ms := math.Exp2((float64(class) + 0.5) / finest)
			return new(rounded(ms / 1000))
		}
	}
	return nil
}

// rounded keeps three digits. More of them would mean nothing.
func rounded(seconds float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(seconds, 'g', 3, 64), 64) // it was written as a number
	return short
}

// array returns the histogram as an array of Postgres.
func (h histogram) array() string {
	return "{" + strings.Join(pg.Column(h, func(n int32) string { return strconv.Itoa(int(n)) }), ",") + "}"
}
