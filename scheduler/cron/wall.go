package cron

import (
	"time"

	"github.com/adhocore/gronx"
)

// Wall-clock times are counted in seconds as though the clock were UTC, whatever the zone. Nothing below knows of
// daylight saving. gronx must never see a zone: in a zone with daylight saving it loses slots, doubles them and can
// err by days.

// The years 1 to 9999, which is what RFC 3339 can write. No slot lies outside.
const (
	earliest = -62135596800
	latest   = 253402300799
)

// nextWall is the first matching wall-clock time after after and before limit.
func (e *Expression) nextWall(after, limit int64) (int64, bool) {
	after, limit = max(after, earliest-1), min(limit, latest+1)
	start := after + 1
	today := floorDay(start)
	if start > today*secondsPerDay+e.lastTime {
		today++
	}
	// There is a matching time left on this day, so gronx looks no further.
	day, ok := e.calendar.onOrAfter(today)
	if !ok {
		return 0, false
	}
	start = max(start, day*secondsPerDay+e.firstTime)
	if start >= limit {
		return 0, false
	}
	found, err := gronx.NextTickAfter(e.clock, time.Unix(start-1, 0).UTC(), false)
	wall := found.Unix()
	// When gronx gives up it may return its start, and not always with an error.
	if err != nil || wall < start || wall >= limit {
		return 0, false
	}
	return wall, true
}

// prevWall is the last matching wall-clock time at or before before and at or after floor.
func (e *Expression) prevWall(before, floor int64) (int64, bool) {
	before, floor = min(before, latest), max(floor, earliest)
	start := before
	today := floorDay(start)
	if start < today*secondsPerDay+e.firstTime {
		today--
	}
	day, ok := e.calendar.onOrBefore(today)
	if !ok {
		return 0, false
	}
	start = min(start, day*secondsPerDay+e.lastTime)
	if start < floor {
		return 0, false
	}
	found, err := gronx.PrevTickBefore(e.clock, time.Unix(start+1, 0).UTC(), false)
	wall := found.Unix()
	if err != nil || wall > start || wall < floor {
		return 0, false
	}
	return wall, true
}

func floorDay(wall int64) int64 {
	day := wall / secondsPerDay
	if wall%secondsPerDay < 0 {
		day--
	}
	return day
}
