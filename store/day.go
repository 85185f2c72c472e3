package store

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// day is the day of runs, as in the names of their tables.
type day string

// anyDay stands for all days, and for runs of several.
const anyDay day = ""

// dayOf returns the day of the runs that succeeded, if it is the same one.
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

// idTime is the time that an id begins with, in milliseconds.
func idTime(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}
