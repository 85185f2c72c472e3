package pg

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusalCounts is how long after a refused write the database counts as taking none. A replica writes at every
// heartbeat and tries refused writes again, so a lasting refusal is noted again well before that.
const refusalCounts = 5 * time.Second

// WriteError says that the database answers but takes no writes.
type WriteError struct {
	Reason string // in a few words
	Code   string // SQLSTATE
}

func (e *WriteError) Error() string { return "the database takes no writes: " + e.Reason }

// refusal is the latest write that the database refused because it takes none.
type refusal struct {
	code string
	at   time.Time
}

// refusals are the SQLSTATEs by which a database says that it takes no writes at all.
var refusals = map[string]string{
	"25006": "it is read-only", // read_only_sql_transaction
	"53100": "its disk is full",
	"58030": "its disk fails", // io_error
}

// TookWrite returns the error of a write. It notes the error if the database takes no writes at all.
func (db *DB) TookWrite(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && refusals[pg.Code] != "" {
		db.refused.Store(&refusal{code: pg.Code, at: time.Now()})
	}
	return err
}

// CheckWrites returns a *WriteError if the database has lately refused a write because it takes none. It sends no
// query: it learns from the writes that are made anyway.
func (db *DB) CheckWrites() error {
	r := db.refused.Load()
	if r == nil || time.Since(r.at) > refusalCounts {
		return nil
	}
	return &WriteError{Reason: refusals[r.code], Code: r.code}
}
