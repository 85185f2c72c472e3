package cron

import (
	"math/bits"
	"time"
)

const secondsPerDay = 24 * 60 * 60

// searchMonths bounds every search for a day. The rarest possible day is 29 February on one given weekday. It comes
// after 40 years at the latest, across a century that is not a leap year.
const searchMonths = 41 * 12

// calendar knows on which days an expression can fire. The length of a month and the weekday of its first day
// describe it fully, so 28 masks cover every month there will ever be.
//
// It also proves at [Parse] that there is a day to find.
type calendar struct {
	months uint16
	days   [7][4]uint32 // [weekday of the 1st][length - 28], bit n is day n
}

func newCalendar(dom, mon, dow *values) calendar {
	c := calendar{months: uint16(mon.plain)}
	for first := range 7 {
		for length := 28; length <= 31; length++ {
			byDay, byWeekday := monthDays(dom, first, length), weekdays(dow, first, length)
			// Vixie cron: with both fields restricted either may match, unless one starts with a star.
			if dom.star || dow.star {
				c.days[first][length-28] = byDay & byWeekday
			} else {
				c.days[first][length-28] = byDay | byWeekday
			}
		}
	}
	return c
}

// monthDays is the mask of the days that a day-of-month field selects.
func monthDays(v *values, first, length int) (m uint32) {
	m = uint32(v.plain) & (1<<(length+1) - 1)
	for n := range each(v.fromEnd) {
		if n < length {
			m |= 1 << (length - n)
		}
	}
	if v.lastWD {
		m |= 1 << nearestWeekday(length, first, length)
	}
	for day := range each(v.nearest) {
		if day <= length {
			m |= 1 << nearestWeekday(day, first, length)
		}
	}
	return m
}

// nearestWeekday is the day from Monday to Friday nearest to day, within the month.
func nearestWeekday(day, first, length int) int {
	switch weekday := (first + day - 1) % 7; {
	case weekday == 6 && day == 1:
		return 3
	case weekday == 6:
		return day - 1
	case weekday == 0 && day == length:
		return day - 2
	case weekday == 0:
		return day + 1
	default:
		return day
	}
}

// weekdays is the mask of the days that a day-of-week field selects.
func weekdays(v *values, first, length int) (m uint32) {
	for day := 1; day <= length; day++ {
		weekday := (first + day - 1) % 7
		if v.plain>>weekday&1 == 1 || v.nth[(day-1)/7+1]>>weekday&1 == 1 || day+7 > length && v.lastOf>>weekday&1 == 1 {
			m |= 1 << day
		}
	}
	return m
}

// possible reports whether any day of any year matches. Every month begins on every weekday in some year, even
// February of leap years.
func (c *calendar) possible() bool {
	for m := time.January; m <= time.December; m++ {
		if c.months>>m&1 == 0 {
			continue
		}
		for first := range 7 {
			if c.days[first][monthLength(2000, m)-28] != 0 || c.days[first][monthLength(2001, m)-28] != 0 {
				return true
			}
		}
	}
	return false
}

// onOrAfter is the first matching day at or after day. Days count from 1 January 1970.
func (c *calendar) onOrAfter(day int64) (int64, bool) {
	year, m, d := time.Unix(day*secondsPerDay, 0).UTC().Date()
	first := day - int64(d) + 1
	from := uint32(1) << d
	for range searchMonths {
		length := monthLength(year, m)
		if mask := c.mask(m, first, length) &^ (from - 1); mask != 0 {
			return first + int64(bits.TrailingZeros32(mask)) - 1, true
		}
		first, from = first+int64(length), 1
		if m++; m > time.December {
			year, m = year+1, time.January
		}
	}
	return 0, false
}

// onOrBefore is the last matching day at or before day.
func (c *calendar) onOrBefore(day int64) (int64, bool) {
	year, m, d := time.Unix(day*secondsPerDay, 0).UTC().Date()
	first := day - int64(d) + 1
	upTo := uint32(1)<<d | (1<<d - 1)
	for range searchMonths {
		if mask := c.mask(m, first, monthLength(year, m)) & upTo; mask != 0 {
			return first + int64(bits.Len32(mask)) - 2, true
		}
		if m--; m < time.January {
			year, m = year-1, time.December
		}
		first, upTo = first-int64(monthLength(year, m)), 1<<32-1
	}
	return 0, false
}

// mask is the mask of the matching days of the month that begins on the day first.
func (c *calendar) mask(m time.Month, first int64, length int) uint32 {
	if c.months>>m&1 == 0 {
		return 0
	}
	weekday := ((first+4)%7 + 7) % 7 // 1 January 1970 was a Thursday
	return c.days[weekday][length-28]
}

func monthLength(year int, m time.Month) int {
	switch m {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	default:
		return 31
	}
}
