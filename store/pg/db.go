package pg

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/seal"
	"punctual/store/session"
)

// Config says how to reach a database.
type Config struct {
	URL          string // postgres:// URL or key=value DSN
	PasswordFile string // see session.Database
	MaxConns     int32  // most connections; 0: 16
	Replica      bool   // for a replica: connections are divided into pools, and callers' waits are limited
	Standby      Standby
	Log          *slog.Logger
	Sealer       *seal.Sealer // seals and opens payloads; nil: what is sealed cannot be opened
}

// DB has the connections to one database, in pools. No pool of a replica waits for another: slow requests to the API do
// not delay chores, neither of them delays attempts and outcomes, and nothing delays a heartbeat. A command has one
// pool, under all four names. Safe for concurrent use.
type DB struct {
	Callers    *Pool // requests to the API, and commands
	Chores     *Pool // background work: operations, notices, partitions, the removal of old rows
	Runs       *Pool // claims, outcomes, attempts' secrets, the readiness check, the replica's start
	Heartbeats *Pool // the renewals of a replica's heartbeat

	config Config
	pools  []*Pool // those that there are

	refused   atomic.Pointer[refusal]
	renewal   renewal
	backstop  backstop // row-level security, which backs up the filters of statements for a tenant
	endpoints endpoints
	prepare   atomic.Pointer[func(context.Context, Querier) error]
	loops     loops
	standby   *standby // nil: there is none
}

// Open connects to the database. It fails if the database cannot be reached.
func Open(ctx context.Context, c Config) (*DB, error) {
	config, err := session.Database{URL: c.URL, PasswordFile: c.PasswordFile}.Config()
	if err != nil {
		return nil, err
	}
	c.MaxConns = cmp.Or(c.MaxConns, 16)
	db := &DB{config: c}
	config.AfterConnect = db.connected
	keeps := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return db.renewal.heed(err) && keeps(conn, err)
	}
	db.endpoints.observe(&config.ConnConfig.Config)
	unnamed(config.ConnConfig)
	if err := db.connect(ctx, config); err != nil {
		db.Close()
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	if err := db.openStandby(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// unnamed makes statements unnamed, unless the URL asks for another mode. They are planned with the values at hand,
// never with a generic plan, which would turn the due select into a sequential scan. They also work behind a PgBouncer
// in transaction mode. Statements that are better off with one plan say so: see Prepared.
func unnamed(config *pgx.ConnConfig) {
	if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		config.StatementCacheCapacity = 0 // not used, and 37 kB a connection
	}
}

// Seals reports whether payloads are sealed as they are written.
func (db *DB) Seals() bool { return db.config.Sealer.On() }

// Close ends all connections and waits until those in use are returned.
func (db *DB) Close() {
	for _, pool := range db.pools {
		pool.Close()
	}
	if db.standby != nil {
		db.standby.pool.Close()
	}
}

// Prepare has work done on every connection that is made from now on, before it is used.
func (db *DB) Prepare(work func(context.Context, Querier) error) { db.prepare.Store(&work) }

// connected prepares a new connection.
func (db *DB) connected(ctx context.Context, conn *pgx.Conn) error {
	registerTypes(conn)
	db.config.Sealer.Register(conn)
	if err := session.Settle(ctx, conn); err != nil {
		return err
	}
	if err := db.endpoints.ask(ctx, conn); err != nil {
		return err
	}
	if prepare := db.prepare.Load(); prepare != nil {
		return (*prepare)(ctx, conn)
	}
	return nil
}

// Tx is a transaction.
type Tx struct {
	pgx.Tx
	Pool  *Pool    // of its connection
	asks  []string // loops that are asked after the commit
	after []func()
}

// After has f called after the commit.
func (tx *Tx) After(f func()) { tx.after = append(tx.after, f) }

// InTx runs work in a transaction that acts for a tenant.
func (p *Pool) InTx(ctx context.Context, tenant int32, work func(tx *Tx) error) error {
	begin, err := p.beginFor(ctx, begin+p.limits, tenant)
	if err != nil {
		return err
	}
	begun, err := p.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin, CommitQuery: p.commit})
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	tx := &Tx{Tx: begun, Pool: p}
	// A separate context: the caller's may have ended, and the connection must be returned clean.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := work(tx); err != nil {
		return p.db.TookWrite(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return p.db.TookWrite(fmt.Errorf("committing: %w", err))
	}
	p.db.Ask(tx.asks...)
	for _, f := range tx.after {
		f()
	}
	return nil
}

// Try runs work in a part of the transaction. If work returns an error, what the part wrote is undone, and the rest of
// the transaction goes on.
func (tx *Tx) Try(ctx context.Context, work func(tx *Tx) error) error {
	begun, err := tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a part of a transaction: %w", err)
	}
	part := &Tx{Tx: begun, Pool: tx.Pool}
	if err := work(part); err != nil {
		if undo := begun.Rollback(ctx); undo != nil {
			return fmt.Errorf("undoing a part of a transaction: %w", undo)
		}
		return err
	}
	tx.Ask(part.asks...)
	tx.after = append(tx.after, part.after...)
	return Wrap("ending a part of a transaction", begun.Commit(ctx))
}

// Writes opens the transactions for one tenant's writes: one for each write, or one that is given for all of them.
type Writes struct {
	Pool   *Pool
	Tenant int32
	Tx     *Tx // nil: each write has a transaction of its own
}

// InTx runs work in a transaction.
func (w Writes) InTx(ctx context.Context, work func(tx *Tx) error) error {
	if w.Tx != nil {
		return work(w.Tx)
	}
	return w.Pool.InTx(ctx, w.Tenant, work)
}

// For returns Writes with a transaction for each.
func (p *Pool) For(tenant int32) Writes { return Writes{Pool: p, Tenant: tenant} }

// Do runs work in a transaction, and returns what it returns.
func Do[T any](ctx context.Context, w Writes, work func(tx *Tx) (T, error)) (value T, err error) {
	err = w.InTx(ctx, func(tx *Tx) (err error) {
		value, err = work(tx)
		return err
	})
	return value, err
}
