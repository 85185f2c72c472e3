// Package runs answers questions about runs, and cancels them: lists, one run with its attempts and what it sends, what
// a run waits for, and the callbacks of targets that work on after their answer. It writes no table by itself: see
// package claim.
package runs

import (
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// Runs are the runs of a database. Safe for concurrent use.
type Runs struct {
	db          *pg.DB
	claims      *claim.Claims
	definitions *definitions.Definitions
}

// New returns the runs of a database.
func New(db *pg.DB, c *claim.Claims, d *definitions.Definitions) *Runs {
	return &Runs{db: db, claims: c, definitions: d}
}
