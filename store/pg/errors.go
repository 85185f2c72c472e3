package pg

import (
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Errors that callers of the store act on.
var (
	ErrNotFound = errors.New("not found")
	// ErrState says that the state of what is there does not allow an action. It is wrapped with the reason.
	ErrState = errors.New("the state does not allow it")
)

// Wrap returns an error with what was being done; nil for nil.
func Wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Found returns the error of reading one thing: ErrNotFound if there was no row.
func Found(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return Wrap("reading "+what, err)
}

// Code returns the SQLSTATE of an error of the database; empty: the error is another one.
func Code(err error) string {
	if dbErr, is := errors.AsType[*pgconn.PgError](err); is {
		return dbErr.Code
	}
	return ""
}

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
	dbErr, is := errors.AsType[*pgconn.PgError](err)
	if !is || dbErr.Code != "55P03" { // lock_not_available
		return "", false
	}
	if found := namesRelation.FindStringSubmatch(dbErr.Where); found != nil {
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
	if Code(err) == "57014" { // query_canceled
		return &SlowError{err: err}
	}
	return nil
}

// awayClasses are the classes of SQLSTATEs that say nothing about a statement, but that the database or the session
// could not do it now. Nothing of it was done.
var awayClasses = []string{
	"08", // connection exception
	"25", // transaction state: the database is read-only, or has ended a transaction that idled or took too long
	"26", // a prepared statement is gone
	"40", // transaction rollback: a deadlock, a conflict
	"53", // insufficient resources
	"55", // an object is not in the state for it, such as locked
	"57", // operator intervention
	"58", // system error, such as of a disk
}

// Away reports whether an error means that the database cannot be used for a while, whatever the statement: it does not
// answer, is starting, stopping or read-only, or the connection was lost. A refused login is another matter.
func Away(err error) bool {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return len(refused.Code) > 2 && slices.Contains(awayClasses, refused.Code[:2])
	}
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	_, malformed := errors.AsType[*pgconn.ParseConfigError](err)
	_, network := errors.AsType[net.Error](err)
	return connect || network && !malformed || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		pgconn.SafeToRetry(err)
}

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

// Refused returns a *WriteError if an error says that the database takes no writes at all, and nil otherwise.
func Refused(err error) error {
	if code := Code(err); refusals[code] != "" {
		return &WriteError{Reason: refusals[code], Code: code}
	}
	return nil
}

// Upgraded says what to do when Postgres cannot load its own libraries. New sessions load them from the disk, into a
// server that was started with others.
const Upgraded = "Postgres cannot load its own libraries, because it was upgraded or removed under the running " +
	"server; restart Postgres"

// Unloadable reports whether Postgres cannot load one of its libraries.
func Unloadable(err error) bool {
	dbErr, is := errors.AsType[*pgconn.PgError](err)
	if !is || !slices.Contains([]string{"58P01", "XX000", "42501"}, dbErr.Code) {
		return false
	}
	return strings.Contains(dbErr.Message, "could not load library") ||
		strings.Contains(dbErr.Message, "incompatible library") ||
		strings.Contains(dbErr.Message, "could not access file")
}

// TookWrite returns the error of a write, with advice where there is some. It notes the error if the database takes no
// writes at all.
func (db *DB) TookWrite(err error) error {
	if Unloadable(err) {
		return fmt.Errorf("%s: %w", Upgraded, err)
	}
	if code := Code(err); refusals[code] != "" {
		db.refused.Store(&refusal{code: code, at: time.Now()})
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
