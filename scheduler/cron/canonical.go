package cron

import (
	"math/bits"
	"strconv"
	"strings"
)

// canonical writes the six parsed fields in a small part of the grammar: numbers, ascending ranges with or without a
// step, L, LW, L-n, nW, nL, n#k, and a leading star exactly where both day fields must match. Expressions that mean the
// same have the same text.
func canonical(f *fields) string {
	dom, dow := &f[dayOfMonth], &f[dayOfWeek]
	domFull, dowFull := f.full(dayOfMonth), f.full(dayOfWeek)
	texts := make([]string, len(specs))
	for i := range specs {
		texts[i] = spans(&specs[i], f[i].plain)
	}
	if both := dom.star || dow.star; !both && (domFull || dowFull) {
		// Either may match and one always does, as in "0 0 1-31 * 1". Left alone, a star would mean that both must.
		texts[dayOfMonth], texts[dayOfWeek] = "*", "*"
		return strings.Join(texts, " ")
	}
	if !domFull {
		texts[dayOfMonth] = dayItems(dom)
	}
	if !dowFull {
		texts[dayOfWeek] = weekdayItems(dow)
	}
	return strings.Join(texts, " ")
}

func dayItems(v *values) string {
	items := plainItems(&specs[dayOfMonth], v)
	for n := range each(v.fromEnd) {
		if n == 0 {
			items = append(items, "L")
		} else {
			items = append(items, "L-"+strconv.Itoa(n))
		}
	}
	if v.lastWD {
		items = append(items, "LW")
	}
	for day := range each(v.nearest) {
		items = append(items, strconv.Itoa(day)+"W")
	}
	return strings.Join(items, ",")
}

func weekdayItems(v *values) string {
	items := plainItems(&specs[dayOfWeek], v)
	for day := range 7 {
		if v.lastOf>>day&1 == 1 {
			items = append(items, strconv.Itoa(day)+"L")
		}
		for k, mask := range v.nth {
			if mask>>day&1 == 1 {
				items = append(items, strconv.Itoa(day)+"#"+strconv.Itoa(k))
			}
		}
	}
	return strings.Join(items, ",")
}

// plainItems writes the numbers of a restricted day field. A field that starts with a star must still do so, because
// then both day fields have to match. A star with a step always selects the lowest value, and
// with the longest step it selects nothing else.
func plainItems(spec *fieldSpec, v *values) []string {
	mask := v.plain
	var items []string
	if v.star {
		mask &^= 1 << spec.min
		items = append(items, "*/"+strconv.Itoa(spec.cycle))
	}
	if mask != 0 {
		items = append(items, spans(spec, mask))
	}
	return items
}

// spans writes a mask as few numbers and ranges: "*", "0-45/15", "1-5,7".
func spans(spec *fieldSpec, mask uint64) string {
	if bits.OnesCount64(mask) == spec.cycle {
		return "*"
	}
	if lo, hi, step, ok := progression(mask); ok {
		return strconv.Itoa(lo) + "-" + strconv.Itoa(hi) + "/" + strconv.Itoa(step)
	}
	var items []string
	for lo, hi := range runsOf(mask) {
		item := strconv.Itoa(lo)
		if hi > lo {
			item += "-" + strconv.Itoa(hi)
		}
		items = append(items, item)
	}
	return strings.Join(items, ",")
}

// progression reports whether three or more values lie equally far apart.
func progression(mask uint64) (lo, hi, step int, ok bool) {
	n := bits.OnesCount64(mask)
	if n < 3 {
		return 0, 0, 0, false
	}
	lo, hi = bits.TrailingZeros64(mask), bits.Len64(mask)-1
	if step = (hi - lo) / (n - 1); step < 2 || step*(n-1) != hi-lo {
		return 0, 0, 0, false
	}
	var want uint64
	for v := lo; v <= hi; v += step {
		want |= 1 << v
	}
	return lo, hi, step, want == mask
}
