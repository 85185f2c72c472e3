// Package fleet shows what is under way: the replicas, the work that waits in each queue, and what holds it back. It
// owns no table.
package fleet

import "punctual/store/pg"

// Fleet is the replicas that share a database, and their work. Safe for concurrent use.
type Fleet struct{ db *pg.Pool }

// New returns the fleet of a database.
func New(db *pg.Pool) *Fleet { return &Fleet{db} }
