// Package archive keeps days of runs outside of the database. Before a day is dropped, a command of the operator's gets
// all its rows, and must succeed. [Archives.Import] reads them back. Start with [Archives.MayDrop], which says whether
// a day may be dropped, and [Archives.Work], the chore that runs the command.
//
// A day is past its retention when it is archived, so its runs have ended and their rows change no more. A run may
// still be added, such as one of a one-shot with an instant of long ago. Rows are read in pages, without a transaction
// around them, so such a run may be missing in the archive. What drops the day therefore counts its runs first. If
// there are not as many as were archived, the day is archived again.
//
// The package writes the table archives, and rows of runs, attempts, run_data and job_versions that were in an archive.
package archive

import (
	"cmp"
	"log/slog"
	"time"

	"punctual/store/pg"
)

// Options says how days are archived.
type Options struct {
	Log     *slog.Logger
	Command string // see CheckCommand; None: days are no longer archived; empty: as other replicas say
	Version string // of this binary, for the first line of an archive
}

// Archives are the archived days of one database. Safe for concurrent use.
type Archives struct {
	db       *pg.DB
	options  Options
	log      *slog.Logger
	patience time.Duration // how long the command may take nothing; tests shorten it
	page     int           // how many runs are read, or written, at a time
}

// New returns the archives of a database.
func New(db *pg.DB, o Options) *Archives {
	return &Archives{db: db, options: o, log: cmp.Or(o.Log, slog.Default()), patience: patience, page: page}
}
