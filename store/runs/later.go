package runs

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/pg"
)

// notOfSlot is the predicate of the index runs_made_later. The id of a slot's run holds the time of the slot. The ids
// of these rows hold the time at which they were made. So do the ids of manual runs, but that is their slot, too.
const notOfSlot = `(r.skipped_last IS NOT NULL OR r.rerun_of IS NOT NULL OR r.trigger IN ('backfill', 'replay'))`

// longAfter says of such a row that it was made long after its slot.
const longAfter = `(r.created_at - r.scheduled_for > interval '1 minute')`

// soonAfter is how long after its slot a row's id lies at most, unless it was made long after. A minute of it is for a
// clock that was set back while the row was written.
const soonAfter = 2 * time.Minute

// laterRows returns the rows in which to look for what was made later than the filter's end: rows of a slot within the
// filter's time, and skips of many slots that end after it. What it costs depends on how many there are, not on the
// runs made since. Most skips are made soon after their slots. Of these only the last before the end count.
func (f Filter) laterRows(c *pg.Conditions, tenant int32, w days.Window) string {
	from := pg.OrZero(f.From)
	last := f.To.Add(-soonAfter)
	if last.Before(from) {
		last = from
	}
	n := len(c.Args)
	c.Args = append(c.Args, tenant, from, last, *f.To, firstAfter(*f.To))
	return fmt.Sprintf(`(
			SELECT r.* FROM punctual.runs r
			WHERE r.tenant = $%[1]d AND `+longAfter+` AND r.scheduled_for >= $%[2]d AND r.scheduled_for < $%[4]d
			  AND r.id >= $%[5]d AND %[6]s AND `+notOfSlot+`
			UNION ALL
			SELECT r.* FROM punctual.runs r
			WHERE r.tenant = $%[1]d AND NOT `+longAfter+` AND r.scheduled_for >= $%[3]d AND r.scheduled_for < $%[4]d
			  AND r.id >= $%[5]d AND %[6]s AND `+notOfSlot+`
			UNION ALL
			SELECT r.* FROM punctual.runs r
			WHERE r.tenant = $%[1]d AND r.skipped_first < $%[4]d AND r.scheduled_for >= $%[4]d AND r.id >= $%[5]d AND %[6]s
			  AND r.skipped_first < r.skipped_last) r`, n+1, n+2, n+3, n+4, n+5,
		w.On(`r.id`)) + withJobs
}

// firstAfter returns an id that is higher than the ids of all slots before an instant. Ids have milliseconds.
func firstAfter(to time.Time) uuid.UUID {
	return domain.FirstRunID(to.Add(time.Millisecond - 1))
}
