package cron

import "math/bits"

// Wall-clock times are counted in seconds as though the clock were UTC, whatever the zone. Nothing below knows of
// daylight saving.

// The years 1 to 9999, which is what RFC 3339 can write. No slot lies outside.
const (
	earliest = -62135596800
	latest   = 253402300799
)

// nextWall is the first matching wall-clock time after after and before limit.
func (e *Expression) nextWall(after, limit int64) (int64, bool) {
	start := max(after+1, earliest)
	today := floorDay(start)
	if start > today*secondsPerDay+e.lastTime {
		today++
	}
	day, ok := e.calendar.onOrAfter(today)
	if !ok {
		return 0, false
	}
	midnight := day * secondsPerDay
	wall := midnight + e.timeFrom(max(start-midnight, e.firstTime))
	return wall, wall < min(limit, latest+1)
}

// prevWall is the last matching wall-clock time at or before before and at or after floor.
func (e *Expression) prevWall(before, floor int64) (int64, bool) {
	start := min(before, latest)
	today := floorDay(start)
	if start < today*secondsPerDay+e.firstTime {
		today--
	}
	day, ok := e.calendar.onOrBefore(today)
	if !ok {
		return 0, false
	}
	midnight := day * secondsPerDay
	wall := midnight + e.timeUpTo(min(start-midnight, e.lastTime))
	return wall, wall >= max(floor, earliest)
}

func floorDay(wall int64) int64 {
	day := wall / secondsPerDay
	if wall%secondsPerDay < 0 {
		day--
	}
	return day
}

// timeFrom is the first matching second of a day from t on. There must be one.
func (e *Expression) timeFrom(t int64) int64 {
	h, m, s := t/3600, t/60%60, t%60
	if e.hours>>h&1 == 1 {
		if s, ok := leastFrom(e.seconds, s); ok && e.minutes>>m&1 == 1 {
			return h*3600 + m*60 + s
		}
		if m, ok := leastFrom(e.minutes, m+1); ok {
			return h*3600 + m*60 + e.firstTime%60
		}
	}
	h, _ = leastFrom(e.hours, h+1)
	return h*3600 + e.firstTime%3600
}

// timeUpTo is the last matching second of a day up to t. There must be one.
func (e *Expression) timeUpTo(t int64) int64 {
	h, m, s := t/3600, t/60%60, t%60
	if e.hours>>h&1 == 1 {
		if s, ok := greatestUpTo(e.seconds, s); ok && e.minutes>>m&1 == 1 {
			return h*3600 + m*60 + s
		}
		if m, ok := greatestUpTo(e.minutes, m-1); ok {
			return h*3600 + m*60 + e.lastTime%60
		}
	}
	h, _ = greatestUpTo(e.hours, h-1)
	return h*3600 + e.lastTime%3600
}

// leastFrom is the least value of a mask that is n or more.
func leastFrom(mask uint64, n int64) (int64, bool) {
	mask = mask >> n << n
	return int64(bits.TrailingZeros64(mask)), mask != 0
}

// greatestUpTo is the greatest value of a mask that is n or less. n may be -1.
func greatestUpTo(mask uint64, n int64) (int64, bool) {
	mask &= 1<<(n+1) - 1
	return int64(bits.Len64(mask)) - 1, mask != 0
}
