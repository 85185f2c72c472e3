// Package history answers from what was recorded: whether every slot ran (verify.go), and what happened to a job at an
// instant (explain.go). It works out from the versions of the definitions which slots there were, and reads runs and
// skips. It writes nothing.
package history

import (
	"time"

	"punctual/store/pg"
)

// History is what a database recorded. Safe for concurrent use.
type History struct {
	db            *pg.Pool
	defaultJitter time.Duration
}

// New returns the history of a database. defaultJitter is the jitter of cron slots a minute or more apart whose
// definition sets none.
func New(db *pg.Pool, defaultJitter time.Duration) *History {
	return &History{db: db, defaultJitter: defaultJitter}
}
