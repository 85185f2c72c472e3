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

// part is a part of a replica's connections. No part waits for another: slow requests to the API do not delay chores,
// and neither of them delays attempts, outcomes or heartbeats.
type part int

const (
	forCallers part = iota // requests to the API, and commands
	forChores              // background work: operations, notices, partitions, the removal of old rows
	forRuns                // heartbeats, claims, outcomes, attempts' secrets, the readiness check, the replica's start
)

// LeastConns is the smallest number of connections that leaves some for every part.
const LeastConns = 8

// A heartbeat, two claims and a write of outcomes go on at once. The fifth connection is for a call that was given up
// on: its connection stays counted for a while.
const (
	fewestForRuns, mostForRuns = 5, 8
	mostForChores              = 4
)

// divide splits a number of connections among the parts. Runs get half of them, within bounds. Chores get a quarter of
// the rest.
func divide(most int32) (parts [3]int32) {
	parts[forRuns] = min(max(most/2, fewestForRuns), mostForRuns)
	parts[forChores] = min(max((most-parts[forRuns])/4, 1), mostForChores)
	parts[forCallers] = most - parts[forRuns] - parts[forChores]
	return parts
}

// partNames are the names of the parts in the metrics.
var partNames = [3]string{forCallers: "api", forChores: "chores", forRuns: "runs"}

type partKey struct{}

// in returns a context whose queries go through a part of the connections.
func (p part) in(ctx context.Context) context.Context { return context.WithValue(ctx, partKey{}, p) }

// partOf returns the part of the connections that a context's queries go through: forCallers unless in chose another.
func partOf(ctx context.Context) part {
	p, _ := ctx.Value(partKey{}).(part)
	return p
}

// conns returns the connections that a context's queries go through.
func (s *Store) conns(ctx context.Context) *pgxpool.Pool { return s.parts[partOf(ctx)] }

// lockLimit is how long a replica's transaction may wait for a lock. statementLimit is how long one statement of a
// request may take. Both are shorter than the time after which a replica counts as lost, so that other transactions do
// not wait long for such a transaction.
const (
	lockLimit      = 3 * time.Second
	statementLimit = 8 * time.Second
)

// Settings of one transaction, so that they also hold behind a pooler. A commit has no limit, as it may wait for a
// standby: a commit that was cut off there would look like a success.
const (
	limitLocks      = `; SET LOCAL lock_timeout = '3s'`
	limitLocksToo   = `set_config('lock_timeout', '3s', true)` // where a transaction is one round trip
	limitStatements = `; SET LOCAL statement_timeout = '8s'`
	commitUnlimited = `SET LOCAL statement_timeout = 0; COMMIT`
)

// limits returns the statements that follow BEGIN, and the statement that commits. Empty strings mean no limits and a
// plain COMMIT.
func (s *Store) limits(ctx context.Context) (begin, commit string) {
	switch {
	case !s.options.Replica:
		return "", "" // a command may take as long as it needs
	case partOf(ctx) == forCallers:
		return limitLocks + limitStatements, commitUnlimited
	case partOf(ctx) == forChores:
		return limitLocks, ""
	}
	return "", "" // forRuns: what a replica does before it starts
}

// JIT compilation is off for every plan. A day without statistics makes a plan look expensive, and compiling it takes
// half a second of a processor, with rows locked, for a few rows. Each transaction says so itself, as a pooler may hand
// out a connection that another session has set up.
const (
	uncompiledSession = `SET jit = off`
	uncompiled        = `SET LOCAL jit = off`
	uncompiledToo     = `set_config('jit', 'off', true)` // where a transaction is one round trip
)

// connect opens the connections. A replica's store divides them into parts.
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

// A LockedError is a write that was given up because another transaction had locked a row, or a table, for too long.
type LockedError struct {
	Doing  string        // what the write was doing at that moment, from its error
	Table  string        // empty: unknown, as other transactions waited for the same row before this one
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

// lockedOut reports whether a statement gave up waiting for a lock, and on which table.
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

// OutOfTime returns a *LockedError or a *SlowError when a caller's transaction was given up because of its limits, and
// nil otherwise.
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
