package claim

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// parking is what becomes of rows of ready that a claim leaves there: some wait for something else than their turn, and
// some are put off.
type parking struct {
	parked []parked
	later  []putOff
	stays  map[uuid.UUID]bool // all of them, and those whose rows stay as they are
}

// parked is a run that waits for its gate, or at a limit.
type parked struct {
	run   uuid.UUID
	waits domain.Wait
	on    string // which limit; empty: none
}

// putOff is a run that is looked at again later.
type putOff struct {
	run   uuid.UUID
	until time.Time
}

var parkedColumns = pg.Columns[parked]{
	pg.Col("run_id", "uuid", func(p parked) uuid.UUID { return p.run }),
	pg.Col("waits", "text", func(p parked) string { return string(p.waits) }),
	pg.Col("waits_on", "text", func(p parked) *string { return pg.OrNull(p.on) }),
}

// parkRuns leaves due_at as it is: whoever makes room sets it.
var parkRuns = `
UPDATE punctual.ready y
SET waits = u.waits, waits_on = u.waits_on, since = coalesce(y.since, y.due_at)
FROM ` + parkedColumns.Unnest("u") + `
WHERE y.run_id = u.run_id`

var putOffColumns = pg.Columns[putOff]{
	pg.Col("run_id", "uuid", func(p putOff) uuid.UUID { return p.run }),
	pg.Col("due_at", "timestamptz", func(p putOff) time.Time { return p.until }),
}

var putRunsOff = `
UPDATE punctual.ready y SET due_at = u.due_at
FROM ` + putOffColumns.Unnest("u") + `
WHERE y.run_id = u.run_id`

// note notes a verdict about a run, which a claim has come to at an instant.
func (p *parking) note(run uuid.UUID, v verdict, now time.Time) {
	if v.fate == leaves {
		return
	}
	if p.stays == nil {
		p.stays = map[uuid.UUID]bool{}
	}
	p.stays[run] = true
	switch v.fate {
	case comesAgain:
		p.later = append(p.later, putOff{run, now.Add(v.in)})
	case waits:
		p.parked = append(p.parked, parked{run, v.wait, v.on})
	}
}

func (p *parking) queueParked(b *pgx.Batch) {
	if len(p.later) > 0 {
		b.Queue(putRunsOff, putOffColumns.Args(p.later)...)
	}
	if len(p.parked) > 0 {
		b.Queue(parkRuns, parkedColumns.Args(p.parked)...)
	}
}
