package cron

import (
	"sort"
	"time"
)

// forever is later than any instant that matters, and small enough to add offsets to.
const forever = 1 << 60

// period is a stretch of real time [start, end) in which a zone keeps one offset from UTC. All values are in seconds.
type period struct {
	start, end          int64
	offset              int64
	previous, following int64 // the offsets just before start and from end on; offset itself if there is no change
}

// gap is how many seconds of wall-clock time were skipped at the start of the period, or 0.
func (p *period) gap() int64 { return max(0, p.offset-p.previous) }

// fresh is the first wall-clock time of the period that had not occurred before it.
func (p *period) fresh() int64 { return p.start + max(p.offset, p.previous) }

// periodAt is the period that contains the instant t.
func periodAt(t int64, zone *time.Location) period {
	b := boundsAt(t, zone)
	p := period{start: b.start, end: b.end, offset: b.offset, previous: b.offset, following: b.offset}
	// ZoneBounds also ends where only the zone's name changes, and at the turn of the year where the rules for the
	// future apply. A real change comes within two such steps. The bound is for rules that change nothing.
	for range 8 {
		if p.end >= forever {
			break
		}
		b := boundsAt(p.end, zone)
		if b.offset != p.offset {
			p.following = b.offset
			break
		}
		p.end = b.end
	}
	for range 8 {
		if p.start <= -forever {
			break
		}
		b := boundsAt(p.start-1, zone)
		if b.offset != p.offset {
			p.previous = b.offset
			break
		}
		p.start = b.start
	}
	return p
}

type bounds struct{ start, end, offset int64 }

// boundsAt is [time.Time.ZoneBounds] with start <= t < end guaranteed and offset right in all of it.
func boundsAt(t int64, zone *time.Location) bounds {
	at := time.Unix(t, 0).In(zone)
	from, to := at.ZoneBounds()
	b := bounds{start: -forever, end: forever, offset: offsetAt(t, zone)}
	if !from.IsZero() {
		b.start = min(from.Unix(), t)
	}
	if !to.IsZero() {
		b.end = to.Unix()
	}
	if b.end <= t {
		// Where the rules for the future apply, Go takes every year to have 365 days. So on 31 December of a leap year the
		// end lies in the past. It means the turn of the year, in UTC.
		b.end = time.Date(time.Unix(t, 0).UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	if b.start > -forever && offsetAt(b.start, zone) != b.offset {
		// Likewise Go may report 1 January as the start although the last recorded change came later in that year.
		b.start += int64(sort.Search(int(t-b.start), func(seconds int) bool {
			return offsetAt(b.start+int64(seconds), zone) == b.offset
		}))
	}
	return b
}

func offsetAt(t int64, zone *time.Location) int64 {
	_, offset := time.Unix(t, 0).In(zone).Zone()
	return int64(offset)
}
