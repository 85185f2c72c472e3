package store

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusalCounts is how long a refused write says that the database takes none. A replica writes at every
// heartbeat, and tries again what was refused, so that a lasting refusal is noted again well before.
const refusalCounts = 5 * time.Second

// WriteError says that the database answers but takes no writes.
type WriteError struct {
	Reason string // in a few words
	Code   string // SQLSTATE
}

func (e *WriteError) Error() string { return "the database takes no writes: " + e.Reason }

// refusal is the latest write that the database refused whatever it was.
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

// tookWrite returns the error of a write, and notes it when the database takes none at all.
func (s *Store) tookWrite(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && refusals[pg.Code] != "" {
		s.refused.Store(&refusal{code: pg.Code, at: time.Now()})
	}
	return err
}

// CheckWrites returns a *WriteError when the database has lately refused a write because it takes none. It
// asks nothing: the writes that are made anyway tell.
func (s *Store) CheckWrites() error {
	r := s.refused.Load()
	if r == nil || time.Since(r.at) > refusalCounts {
		return nil
	}
	return &WriteError{Reason: refusals[r.code], Code: r.code}
}
