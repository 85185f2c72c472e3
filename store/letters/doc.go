// Package letters keeps dead letters, and does work on many runs or jobs at a time: it replays and resolves dead
// letters, backfills slots of the past, and pauses, resumes and deletes jobs. It owns the tables dead_letters,
// operations and operation_jobs, but a dead letter is written with the end of its run: see package claim.
//
// A request for much work becomes an operation (operations.go). Any replica does it in the background, batch by batch
// (operate.go): operate_letters.go for dead letters, operate_backfill.go for slots, operate_jobs.go for jobs.
// dead_letters.go has what is done to one dead letter, and groups.go counts dead letters by job and reason.
//
// An operation works on what its request selected when it was made, and on nothing that comes later. Dead letters are
// marked as the operation's. Jobs are not: a mark would write each job's row and all its index entries once more, and a
// job could be part of one operation only. So the operation keeps the ids of its jobs (jobs.go), which costs 16 bytes a
// job. When a job's turn comes, it must still match the request's filter. A caller who has
// taken the label away by which jobs are deleted wants to keep the job.
package letters

import (
	"log/slog"
	"time"

	"punctual/store/aside"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Options says what the absent fields of a definition mean, and how long runs are kept.
type Options struct {
	Log           *slog.Logger
	DefaultJitter time.Duration // jitter of cron slots a minute or more apart whose definition sets none
	Retention     time.Duration // how far back slots may be backfilled
}

// Letters are the dead letters and operations of a database. Safe for concurrent use.
type Letters struct {
	db          *pg.DB
	days        *days.Days
	definitions *definitions.Definitions
	jobs        *jobs.Jobs
	aside       *aside.Aside
	options     Options
	pace        pace
}

// New returns the dead letters and operations of a database.
func New(
	db *pg.DB, days *days.Days, definitions *definitions.Definitions, jobs *jobs.Jobs, a *aside.Aside, o Options,
) *Letters {
	return &Letters{db: db, days: days, definitions: definitions, jobs: jobs, aside: a, options: o}
}

// groupCursor is the list that a cursor of groups belongs to.
const groupCursor byte = 'g'
