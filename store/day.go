package store

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// day is a day of runs, as in the names of their tables.
type day string

// anyDay stands for all days. It is also the day of runs of several days.
const anyDay day = ""

// dayOf returns the day of the runs that succeeded, if they all have the same one.
func dayOf(outcomes []scheduler.Outcome) (common day) {
	for _, o := range outcomes {
		if o.Verdict != scheduler.Succeed {
			continue
		}
		at := day(idTime(o.RunID).Format("20060102"))
		if common != anyDay && at != common {
			return anyDay
		}
		common = at
	}
	return common
}

// idTime returns the time with which an id begins, to the millisecond.
func idTime(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}
