package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is a pool of connections: see DB for those that there are. As a Querier it reads for all tenants.
type Pool struct {
	*pgxpool.Pool
	db   *DB
	name string // in the metrics

	// The statements that follow BEGIN, and the statement that commits. Empty strings mean no limits and a plain COMMIT.
	limits, commit string
}

// LeastConns is the smallest number of connections that leaves some for every pool of a replica.
const LeastConns = 10

// A call that was given up on keeps its connection for a while. So there are two connections for the one heartbeat,
// and four for two claims and a write of outcomes.
const (
	forHeartbeats              = 2
	fewestForRuns, mostForRuns = 4, 8
	mostForChores              = 4
)

// sizes are the numbers of connections in the pools of a replica.
type sizes struct{ callers, chores, runs, heartbeats int32 }

// divide splits a number of connections among the pools. What heartbeats leave goes half to runs, within bounds.
// Chores get a quarter of the rest.
func divide(most int32) sizes {
	rest := most - forHeartbeats
	runs := min(max(rest/2, fewestForRuns), mostForRuns)
	rest -= runs
	chores := min((rest+3)/4, mostForChores)
	return sizes{rest - chores, chores, runs, forHeartbeats}
}

// Stats calls visit with the name of each pool and the state of its connections. A command has one pool.
func (db *DB) Stats(visit func(pool string, stat *pgxpool.Stat)) {
	for _, p := range db.pools {
		visit(p.name, p.Stat())
	}
}

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

// Uncompiled turns JIT compilation off for a transaction (see session.Settle), as a statement of its own. uncompiledToo
// is an expression where a transaction is one round trip.
const (
	Uncompiled    = `SET LOCAL jit = off`
	uncompiledToo = `set_config('jit', 'off', true)`
)

// connect opens the pools. A command has one pool, without limits: it may take as long as it needs. Runs and Heartbeats
// have no limits either: the only transactions there are those of a replica before it starts.
func (db *DB) connect(ctx context.Context, config *pgxpool.Config) (err error) {
	config.MinIdleConns = 1
	if config.MaxConnLifetime == time.Hour { // pgxpool's default: the URL names none
		config.MaxConnLifetime, config.MaxConnLifetimeJitter = lifetime, lifetimeJitter
	}
	size := sizes{callers: db.config.MaxConns}
	callers := config.Copy()
	if db.config.Replica {
		size = divide(db.config.MaxConns)
		callers.ConnConfig.Tracer = waits{}
	}
	if db.Callers, err = db.open(ctx, "api", callers, size.callers); err != nil {
		return err
	}
	if err := db.Callers.Ping(ctx); err != nil {
		return err
	}
	if !db.config.Replica {
		db.Chores, db.Runs, db.Heartbeats = db.Callers, db.Callers, db.Callers
		return nil
	}
	db.Callers.limits, db.Callers.commit = limitLocks+limitStatements, commitUnlimited
	chores := config.Copy()
	chores.MinIdleConns = 0
	if db.Chores, err = db.open(ctx, "chores", chores, size.chores); err != nil {
		return err
	}
	db.Chores.limits = limitLocks
	if db.Runs, err = db.open(ctx, "runs", config.Copy(), size.runs); err != nil {
		return err
	}
	db.Heartbeats, err = db.open(ctx, "heartbeats", config.Copy(), size.heartbeats)
	return err
}

func (db *DB) open(ctx context.Context, name string, config *pgxpool.Config, most int32) (*Pool, error) {
	config.MaxConns = most
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &Pool{Pool: pool, db: db, name: name}
	db.pools = append(db.pools, p)
	db.renewal.add(pool)
	return p, nil
}

// ByIndex keeps the planner from reading whole tables for the rest of a transaction. A table without statistics, such
// as the runs of a day that has just begun, looks small to the planner and may not be, and the plan made then is kept.
// ByIndex also turns JIT compilation off: with sequential scans disabled, a plan that still needs one, such as the plan
// over the tenants, looks expensive enough for Postgres to compile it.
const ByIndex = `SELECT set_config('enable_seqscan', 'off', true), ` + uncompiledToo

// Apart runs work on a connection that is made for it. So it does not wait for one of a pool, which may be held by
// whoever waits for the work.
func (db *DB) Apart(ctx context.Context, work func(q Querier) error) error {
	config := db.Runs.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("making a connection: %w", err)
	}
	defer pool.Close()
	return work(pool)
}
