// Package days keeps the daily partitions of runs, attempts and run_data: it makes them ahead, and retires them when
// they are older than their retention and archived. Start with [Days.Ensure] and [Days.Retire]. [Day] is for statements
// about the runs of one day, [Search] for those that look back over many.
//
// It writes rows of no table. What it may create, detach and drop are the partitions, through the database's functions
// create_partitions and retire_partitions.
package days

import (
	"log/slog"
	"sync"
	"time"

	"punctual/store/archive"
	"punctual/store/pg"
)

// Days are the daily partitions of one database. Safe for concurrent use.
type Days struct {
	db                          *pg.DB
	archives                    *archive.Archives
	retention, failureRetention time.Duration
	log                         *slog.Logger

	busy  sync.Mutex           // held by the one pass of Retire in this process; guards stays
	stays map[string]time.Time // days that are still needed, and when to look again; losing it costs a needless look
}

// New returns the days of a database. Runs are kept for retention, and those that did not succeed for
// failureRetention.
func New(
	db *pg.DB, archives *archive.Archives, retention, failureRetention time.Duration, log *slog.Logger,
) *Days {
	return &Days{
		db: db, archives: archives, retention: retention, failureRetention: failureRetention, log: log,
		stays: map[string]time.Time{},
	}
}
