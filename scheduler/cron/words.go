package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Words says when an expression fires, for people: "Mon–Fri 03:00", "every 15 min", "on the last day of the month
// 00:00". Times of day are in the schedule's zone, which the words leave to the caller. The error is that of [Parse].
func Words(expr string) (string, error) {
	p, err := parse(expr)
	if err != nil {
		return "", err
	}
	days, times := dayWords(&p.fields), timeWords(&p.fields)
	switch {
	case days == "" && strings.HasPrefix(times, "every"):
		return times, nil
	case days == "":
		return "daily " + times, nil
	case strings.HasPrefix(days, "in ") && !strings.HasPrefix(times, "every"):
		return "daily " + days + " " + times, nil
	case strings.HasPrefix(times, "every"):
		return times + ", " + days, nil
	}
	return days + " " + times, nil
}

// mostTimes bounds how many times of a day are listed one by one.
const mostTimes = 6

// timeWords says at which times of a day the expression fires.
func timeWords(f *fields) string {
	h, m, s := f[hour].plain, f[minute].plain, f[second].plain
	times := bits.OnesCount64(h) * bits.OnesCount64(m) * bits.OnesCount64(s)
	onTheMinute := s == 1
	if step, ok := wholeCycle(hour, h); ok && onTheMinute && bits.OnesCount64(m) == 1 && step > 1 && times > mostTimes {
		return fmt.Sprintf("every %d h at minute %d", step, bits.TrailingZeros64(m))
	}
	if times <= mostTimes || onTheMinute && bits.OnesCount64(m) == 1 && spansOf(h) > mostTimes/2 {
		return listTimes(h, m, s)
	}
	var text string
	_, steady := wholeCycle(second, s)
	switch {
	case f.full(minute) && onTheMinute:
		text = "every minute"
	case f.full(minute):
		text = rhythm(second, s, "s", "every minute at second ")
	case onTheMinute:
		text = rhythm(minute, m, "min", "every hour at minute ")
	case steady || f.full(second):
		text = rhythm(second, s, "s", "") + " of minute " + numbers(m)
	default:
		text = rhythm(minute, m, "min", "every hour at minute ") + " at second " + numbers(s)
	}
	if !f.full(hour) {
		text += ", " + hourSpans(h)
	}
	return text
}

func spansOf(mask uint64) (n int) {
	for range runsOf(mask) {
		n++
	}
	return n
}

// rhythm says that a field repeats all through its cycle, or lists its values after a prefix.
func rhythm(field int, mask uint64, unit, prefix string) string {
	if specs[field].cycle == bits.OnesCount64(mask) {
		return "every " + specs[field].name
	}
	if step, ok := wholeCycle(field, mask); ok {
		return fmt.Sprintf("every %d %s", step, unit)
	}
	return prefix + numbers(mask)
}

// wholeCycle reports whether the values are equally far apart all around the field's cycle, from 0 on.
func wholeCycle(field int, mask uint64) (step int, ok bool) {
	var lo, hi int
	if bits.OnesCount64(mask) == 2 {
		lo, hi = bits.TrailingZeros64(mask), bits.Len64(mask)-1
		step, ok = hi-lo, true
	} else {
		lo, hi, step, ok = progression(mask)
	}
	return step, ok && lo == 0 && hi+step == specs[field].cycle
}

// listTimes lists times of a day.
func listTimes(hours, minutes, seconds uint64) string {
	var times []string
	for h := range each(hours) {
		for m := range each(minutes) {
			for s := range each(seconds) {
				text := fmt.Sprintf("%02d:%02d", h, m)
				if seconds != 1 {
					text += fmt.Sprintf(":%02d", s)
				}
				times = append(times, text)
			}
		}
	}
	return strings.Join(times, ", ")
}

// hourSpans lists ranges of hours as times: the hours 8 to 17 are 08:00–17:59.
func hourSpans(mask uint64) string {
	var items []string
	for lo, hi := range runsOf(mask) {
		items = append(items, fmt.Sprintf("%02d:00–%02d:59", lo, hi))
	}
	return strings.Join(items, ", ")
}

// dayWords says on which days the expression fires; empty: on every day.
func dayWords(f *fields) string {
	dom, dow := &f[dayOfMonth], &f[dayOfWeek]
	days, weekdays := "", ""
	if !f.full(dayOfMonth) {
		days = monthDayWords(dom)
	}
	if !f.full(dayOfWeek) {
		weekdays = weekdayWords(dow)
	}
	text := days + weekdays
	switch {
	case days != "" && weekdays != "" && (dom.star || dow.star):
		text = days + " if " + strings.TrimPrefix(weekdays, "on ")
	case days != "" && weekdays != "":
		text = days + " or " + weekdays
	case !dom.star && !dow.star:
		text = "" // either may match, and one always does
	}
	if f.full(month) {
		return text
	}
	months := "in " + nameSpans(specs[month].names, f[month].plain>>specs[month].min)
	if text == "" {
		return months
	}
	return text + " " + months
}

func monthDayWords(v *values) string {
	var items []string
	if _, _, _, ok := progression(v.plain); ok { // too many to name each with its article
		items = append(items, "days "+numbers(v.plain))
	} else {
		for lo, hi := range runsOf(v.plain) {
			item := "the " + ordinal(lo)
			if hi > lo {
				item += "–" + ordinal(hi)
			}
			items = append(items, item)
		}
	}
	for day := range each(v.nearest) {
		items = append(items, "the weekday nearest the "+ordinal(day))
	}
	for n := range each(v.fromEnd) {
		switch n {
		case 0:
			items = append(items, "the last day of the month")
		case 1:
			items = append(items, "the day before the last of the month")
		default:
			items = append(items, fmt.Sprintf("the day %d days before the last of the month", n))
		}
	}
	if v.lastWD {
		items = append(items, "the last weekday of the month")
	}
	return "on " + strings.Join(items, ", ")
}

func weekdayWords(v *values) string {
	var items []string
	if v.plain != 0 {
		fromMonday := v.plain>>1 | v.plain&1<<6 // the week of people: Monday is bit 0
		items = append(items, nameSpans(append(specs[dayOfWeek].names[1:7:7], "SUN"), fromMonday))
	}
	for k, mask := range v.nth {
		for day := range each(uint64(mask)) {
			items = append(items, "the "+ordinal(k)+" "+inTitleCase(specs[dayOfWeek].names[day]))
		}
	}
	for day := range each(v.lastOf) {
		items = append(items, "the last "+inTitleCase(specs[dayOfWeek].names[day]))
	}
	text := strings.Join(items, ", ")
	if v.plain == 0 {
		return "on " + text
	}
	return text
}

// nameSpans lists the names of the values in a mask, with ranges of three and more: "Mon–Fri, Sun".
func nameSpans(names []string, mask uint64) string {
	var items []string
	for lo, hi := range runsOf(mask) {
		switch {
		case hi-lo > 1:
			items = append(items, inTitleCase(names[lo])+"–"+inTitleCase(names[hi]))
		case hi > lo:
			items = append(items, inTitleCase(names[lo]), inTitleCase(names[hi]))
		default:
			items = append(items, inTitleCase(names[lo]))
		}
	}
	return strings.Join(items, ", ")
}

func inTitleCase(name string) string { return name[:1] + strings.ToLower(name[1:]) }

// numbers lists the values in a mask, with ranges of three and more: "5–8, 19, 20".
func numbers(mask uint64) string {
	var items []string
	for lo, hi := range runsOf(mask) {
		if hi-lo > 1 {
			items = append(items, fmt.Sprintf("%d–%d", lo, hi))
			continue
		}
		for n := lo; n <= hi; n++ {
			items = append(items, strconv.Itoa(n))
		}
	}
	return strings.Join(items, ", ")
}

func ordinal(n int) string {
	suffix := "th"
	if n/10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
