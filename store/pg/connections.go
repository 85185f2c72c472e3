package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Part is a part of a replica's connections. No part waits for another: slow requests to the API do not delay chores,
// neither of them delays attempts and outcomes, and nothing delays a heartbeat.
type Part int

// The parts.
const (
	Callers    Part = iota // requests to the API, and commands
	Chores                 // background work: operations, notices, partitions, the removal of old rows
	Runs                   // claims, outcomes, attempts' secrets, the readiness check, the replica's start
	Heartbeats             // the renewals of a replica's heartbeat
	parts
)

// LeastConns is the smallest number of connections that leaves some for every part.
const LeastConns = 10

// A call that was given up on keeps its connection for a while. So there are two connections for the one heartbeat,
// and four for two claims and a write of outcomes.
const (
	forHeartbeats              = 2
	fewestForRuns, mostForRuns = 4, 8
	mostForChores              = 4
)

// divide splits a number of connections among the parts. What heartbeats leave goes half to runs, within bounds.
// Chores get a quarter of the rest.
func divide(most int32) (sizes [parts]int32) {
	rest := most - forHeartbeats
	sizes[Heartbeats] = forHeartbeats
	sizes[Runs] = min(max(rest/2, fewestForRuns), mostForRuns)
	rest -= sizes[Runs]
	sizes[Chores] = min((rest+3)/4, mostForChores)
	sizes[Callers] = rest - sizes[Chores]
	return sizes
}

// partNames are the names of the parts in the metrics.
var partNames = [parts]string{Callers: "api", Chores: "chores", Runs: "runs", Heartbeats: "heartbeats"}

type partKey struct{}

// In returns a context whose queries go through a part of the connections.
func (p Part) In(ctx context.Context) context.Context { return context.WithValue(ctx, partKey{}, p) }

// partOf returns the part of the connections that a context's queries go through: Callers unless In chose another.
func partOf(ctx context.Context) Part {
	p, _ := ctx.Value(partKey{}).(Part)
	return p
}

// Conns returns the connections that a context's queries go through.
func (db *DB) Conns(ctx context.Context) *pgxpool.Pool { return db.parts[partOf(ctx)] }

// Stats calls visit with the name of each part and the state of its connections. A command has one part.
func (db *DB) Stats(visit func(part string, stat *pgxpool.Stat)) {
	for p, pool := range db.parts {
		if p == 0 || pool != db.Pool() {
			visit(partNames[p], pool.Stat())
		}
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

// limits returns the statements that follow BEGIN, and the statement that commits. Empty strings mean no limits and a
// plain COMMIT.
func (db *DB) limits(ctx context.Context) (begin, commit string) {
	switch {
	case !db.config.Replica:
		return "", "" // a command may take as long as it needs
	case partOf(ctx) == Callers:
		return limitLocks + limitStatements, commitUnlimited
	case partOf(ctx) == Chores:
		return limitLocks, ""
	}
	return "", "" // Runs: what a replica does before it starts
}

// Uncompiled turns JIT compilation off for a transaction (see session.Settle), as a statement of its own. uncompiledToo
// is an expression where a transaction is one round trip.
const (
	Uncompiled    = `SET LOCAL jit = off`
	uncompiledToo = `set_config('jit', 'off', true)`
)

// connect opens the connections. Those of a replica are divided into parts.
func (db *DB) connect(ctx context.Context, config *pgxpool.Config) error {
	config.MinIdleConns = 1
	if config.MaxConnLifetime == time.Hour { // pgxpool's default: the URL names none
		config.MaxConnLifetime, config.MaxConnLifetimeJitter = lifetime, lifetimeJitter
	}
	sizes := divide(db.config.MaxConns)
	for p := range db.parts {
		own := config.Copy()
		switch own.MaxConns = sizes[p]; {
		case !db.config.Replica && p > 0:
			db.parts[p] = db.Pool()
			continue
		case !db.config.Replica:
			own.MaxConns = db.config.MaxConns
		case Part(p) == Callers:
			own.ConnConfig.Tracer = waits{}
		case Part(p) == Chores:
			own.MinIdleConns = 0
		}
		pool, err := pgxpool.NewWithConfig(ctx, own)
		if err != nil {
			return err
		}
		db.parts[p] = pool
		db.renewal.add(pool)
		if p == int(Callers) {
			if err := pool.Ping(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// ByIndex keeps the planner from reading whole tables for the rest of a transaction. A table without statistics, such
// as the runs of a day that has just begun, looks small to the planner and may not be, and the plan made then is kept.
// ByIndex also turns JIT compilation off: with sequential scans disabled, a plan that still needs one, such as the plan
// over the tenants, looks expensive enough for Postgres to compile it.
const ByIndex = `SELECT set_config('enable_seqscan', 'off', true), ` + uncompiledToo
