// Package overview answers what a first page shows: what is overdue, which jobs fail, how many dead letters are open,
// and how the last 24 hours went. What must be right now is read by index, up to a bound. The last 24 hours are counted
// beforehand by a chore: start with Board.CountHours. What the runs of a day used is summed by another,
// Board.CountUsage. A day is not the sum of its hours: those would need a row for each job, as the first hour does not
// know which 1,000 jobs will have the most attempts of the day, and of jobs that run hourly that is a row a run. The
// package writes counted_hours, hourly_runs, counted_days and daily_usage.
package overview

import (
	"sync"
	"time"

	"punctual/store/pg"
)

// Board is the overview of a database. Safe for concurrent use.
type Board struct {
	db    *pg.DB
	batch int64 // how many runs one transaction counts; tests count fewer

	leftOut sync.Map // tenants whose runs are not counted, each until when

	streaks  streaks
	boards   shared[Figures]
	troubles shared[troubles]
	age      time.Duration // of what is shared
}

// New returns the overview of a database.
func New(db *pg.DB) *Board { return &Board{db: db, batch: batch} }
