package pg

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// A LockedError is a write that was given up because another transaction had locked a row, or a table, for too long.
type LockedError struct {
	Doing  string        // what the write was doing at that moment, from its error
	Table  string        // empty: unknown, as other transactions waited for the same row before this one
	Waited time.Duration // for the lock
	err    error
}

func (e *LockedError) Error() string {
	text := fmt.Sprintf("waited %s for %s that another transaction has locked", e.Waited, e.what())
	if e.Doing != "" {
		return e.Doing + ": " + text
	}
	return text
}

// Unwrap returns the database's error.
func (e *LockedError) Unwrap() error { return e.err }

// what names the locked row for callers, who need not know the tables.
func (e *LockedError) what() string {
	switch e.Table {
	case "jobs", "job_versions":
		return "the job"
	case "schedules":
		return "the job's schedule"
	case "exclusive":
		return "the gate of a job whose runs must not overlap"
	case "":
		return "a row"
	}
	return "a row of " + e.Table
}

// A SlowError is a write that was given up because one of its statements took too long.
type SlowError struct{ err error }

func (e *SlowError) Error() string {
	return fmt.Sprintf("a statement took longer than %s, or was cancelled", statementLimit)
}

// Unwrap returns the database's error.
func (e *SlowError) Unwrap() error { return e.err }

// namesRelation finds the table in the context of a Postgres error: while locking tuple (0,1) in relation "schedules".
var namesRelation = regexp.MustCompile(`"([a-z_0-9]+)"`)

// LockedOut reports whether a statement gave up waiting for a lock, and on which table.
func LockedOut(err error) (table string, is bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "55P03" { // lock_not_available
		return "", false
	}
	if found := namesRelation.FindStringSubmatch(pg.Where); found != nil {
		table = found[1]
	}
	return table, true
}

// OutOfTime returns a *LockedError or a *SlowError when a caller's transaction was given up because of its limits, and
// nil otherwise.
func OutOfTime(err error) error {
	if table, is := LockedOut(err); is {
		doing, _, _ := strings.Cut(err.Error(), ": ERROR: ")
		return &LockedError{Doing: doing, Table: table, Waited: lockLimit, err: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" { // query_canceled
		return &SlowError{err: err}
	}
	return nil
}
