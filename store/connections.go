package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// part is a part of a replica's connections. None waits for another: slow requests keep no chore from being done, and
// neither keeps anything from being sent, written down, or known to be alive.
type part int

const (
	forCallers part = iota // what requests of the API ask, and commands
	forChores              // what goes on in the background: operations, notices, partitions, what is kept for a time
	forRuns                // heartbeats, claims, outcomes, the secrets that attempts need, whether the replica is ready, and its start
)

// LeastConns is the smallest number of connections that has all parts.
const LeastConns = 8

// A heartbeat, two claims and a write of outcomes go on at once. One that was given up on is counted for a while longer.
const (
	fewestForRuns, mostForRuns = 5, 8
	mostForChores              = 4
)

// divide returns how many connections each part has of so many: for runs half of them, within bounds, and for chores a
// quarter of the rest.
func divide(most int32) (parts [3]int32) {
	parts[forRuns] = min(max(most/2, fewestForRuns), mostForRuns)
	parts[forChores] = min(max((most-parts[forRuns])/4, 1), mostForChores)
	parts[forCallers] = most - parts[forRuns] - parts[forChores]
	return parts
}

// partNames are the parts as the metrics call them.
var partNames = [3]string{forCallers: "api", forChores: "chores", forRuns: "runs"}

type partKey struct{}

// in returns a context in which the database is asked through a part of the connections.
func (p part) in(ctx context.Context) context.Context { return context.WithValue(ctx, partKey{}, p) }

// partOf returns the part that a context asks through: that for callers, unless somebody said another.
func partOf(ctx context.Context) part {
	p, _ := ctx.Value(partKey{}).(part)
	return p
}

// conns returns the connections that a context asks through.
func (s *Store) conns(ctx context.Context) *pgxpool.Pool { return s.parts[partOf(ctx)] }

// What a transaction of a replica may wait for a lock, and what one statement of a request may take. Both are less than
// the time after which a replica is taken for lost, so that whoever waits for such a transaction does not wait for long.
const (
	lockLimit      = 3 * time.Second
	statementLimit = 8 * time.Second
)

// Settings of one transaction, so that they hold behind a pooler as well. A commit may wait for a standby: to be cut off
// there would look like success.
const (
	limitLocks      = `; SET LOCAL lock_timeout = '3s'`
	limitLocksToo   = `set_config('lock_timeout', '3s', true)` // where a transaction is one round trip
	limitStatements = `; SET LOCAL statement_timeout = '8s'`
	commitUnlimited = `SET LOCAL statement_timeout = 0; COMMIT`
)

// limits returns what follows the beginning of a transaction, and what commits it; empty: as it is by itself.
func (s *Store) limits(ctx context.Context) (begin, commit string) {
	switch {
	case !s.options.Replica:
		return "", "" // a command, which takes as long as it takes
	case partOf(ctx) == forCallers:
		return limitLocks + limitStatements, commitUnlimited
	case partOf(ctx) == forChores:
		return limitLocks, ""
	}
	return "", "" // what a replica does before it starts
}

// No plan is compiled. A day that nobody has analysed yet makes a plan look dear, and to compile it takes half a second
// of a processor, with rows locked, for a few rows. Transactions say so themselves, as a pooler may hand out a connection
// that another session has set up.
const (
	uncompiledSession = `SET jit = off`
	uncompiled        = `SET LOCAL jit = off`
	uncompiledToo     = `set_config('jit', 'off', true)` // where a transaction is one round trip
)

// connect opens the connections, in parts if this is a replica's store.
func (s *Store) connect(ctx context.Context, config *pgxpool.Config) error {
	config.MinIdleConns = 1
	sizes := divide(s.options.MaxConns)
	for p := range s.parts {
		own := config.Copy()
		switch own.MaxConns = sizes[p]; {
		case !s.options.Replica && p > 0:
			s.parts[p] = s.pool
			continue
		case !s.options.Replica:
			own.MaxConns = s.options.MaxConns
		case part(p) == forChores:
			own.MinIdleConns = 0
		}
		pool, err := pgxpool.NewWithConfig(ctx, own)
		if err != nil {
			return err
		}
		s.parts[p] = pool
		if p == int(forCallers) {
			s.pool = pool
			if err := pool.Ping(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// A LockedError is a write that was given up because somebody else had locked a row, or a table, for too long.
type LockedError struct {
	Doing  string        // what it did at that moment, as its error tells
	Table  string        // empty: unknown, as others waited for the same row before it
	Waited time.Duration // for the lock
	err    error
}

func (e *LockedError) Error() string {
	text := fmt.Sprintf("waited %s for %s that somebody else has locked", e.Waited, e.what())
	if e.Doing != "" {
		return e.Doing + ": " + text
	}
	return text
}

// Unwrap returns what the database said.
func (e *LockedError) Unwrap() error { return e.err }

// what names what was locked, for callers, who need not know the tables.
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

// A SlowError is a write that was given up because one statement of it took too long.
type SlowError struct{ err error }

func (e *SlowError) Error() string {
	return fmt.Sprintf("a statement took longer than %s, or was cancelled", statementLimit)
}

// Unwrap returns what the database said.
func (e *SlowError) Unwrap() error { return e.err }

// namesRelation finds the table in what Postgres says it was doing: while locking tuple (0,1) in relation "schedules".
var namesRelation = regexp.MustCompile(`"([a-z_0-9]+)"`)

// lockedOut reports whether a statement gave up waiting for a lock, and of which table.
func lockedOut(err error) (table string, is bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "55P03" { // lock_not_available
		return "", false
	}
	if found := namesRelation.FindStringSubmatch(pg.Where); found != nil {
		table = found[1]
	}
	return table, true
}

// OutOfTime returns a *LockedError or a *SlowError where a caller's transaction was given up because of its limits;
// otherwise nil.
func OutOfTime(err error) error {
	if table, is := lockedOut(err); is {
		doing, _, _ := strings.Cut(err.Error(), ": ERROR: ")
		return &LockedError{Doing: doing, Table: table, Waited: lockLimit, err: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" { // query_canceled
		return &SlowError{err: err}
	}
	return nil
}
