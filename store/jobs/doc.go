// Package jobs keeps jobs: it creates, edits, pauses, triggers and deletes them, and lists them. It owns the tables
// jobs, job_versions, tenant_jobs, dated, dated_work and dated_sequences. Each change is a new version of the job, with
// an entry in the audit log.
//
// A change first holds its jobs (hold.go): it locks their rows in schedules, as the claim does, so that no slot is
// claimed meanwhile. A one-shot whose slot was claimed has no row any more and gets one again. Then it settles the
// slots that are due under the definition that was valid until now (settle.go), and saves the new version. New jobs are
// written many at a time (insert.go).
//
// Dated runs wait for their instants (dated.go) until a claim takes them. A chore makes them fit jobs that have changed
// (dated_fit.go).
//
// A forecast (forecast.go) reads the schedules of all jobs, and counts their slots to come.
//
// Chores end pauses (pause_end.go), compute next slots again when the time zone data has changed (zones.go), and forget
// old jobs and versions (forget.go, versions.go).
package jobs

import (
	"log/slog"
	"time"

	"punctual/scheduler/jobspec"
	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/secrets"
)

// Options says what jobs need to know of the deployment.
type Options struct {
	Log           *slog.Logger
	DefaultJitter time.Duration // jitter of cron slots a minute or more apart whose definition sets none
	Retention     time.Duration // how long runs are kept
}

// Jobs are the jobs of a database. Safe for concurrent use.
type Jobs struct {
	db          *pg.DB
	options     Options
	claims      *claim.Claims
	definitions *definitions.Definitions
	secrets     *secrets.Secrets
	aside       *aside.Aside
	walks       walks
	crossCheck  func(*jobspec.Timetable) error // of a definition that is about to be written
}

// New returns the jobs of a database.
func New(
	db *pg.DB, c *claim.Claims, d *definitions.Definitions, s *secrets.Secrets, a *aside.Aside, o Options,
) *Jobs {
	return &Jobs{
		db: db, options: o, claims: c, definitions: d, secrets: s, aside: a, crossCheck: (*jobspec.Timetable).CrossCheck,
	}
}
