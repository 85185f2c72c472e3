package pg

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/store/session"
)

// Config says how to reach a database.
type Config struct {
	URL          string // postgres:// URL or key=value DSN
	PasswordFile string // see session.Database
	MaxConns     int32  // most connections; 0: 16
	Replica      bool   // for a replica: connections are divided into parts, and callers' waits are limited
	Standby      Standby
	Log          *slog.Logger
}

// DB is a pool of connections to one database. Safe for concurrent use.
type DB struct {
	config Config
	parts  [parts]*pgxpool.Pool // by part; all the same unless they are a replica's

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

// Close ends all connections and waits until those in use are returned.
func (db *DB) Close() {
	for _, pool := range db.parts {
		if pool != nil {
			pool.Close()
		}
	}
	if db.standby != nil {
		db.standby.pool.Close()
	}
}

// Pool returns the pool of connections for callers.
func (db *DB) Pool() *pgxpool.Pool { return db.parts[Callers] }

// Prepare has work done on every connection that is made from now on, before it is used.
func (db *DB) Prepare(work func(context.Context, Querier) error) { db.prepare.Store(&work) }

// connected prepares a new connection.
func (db *DB) connected(ctx context.Context, conn *pgx.Conn) error {
	registerTypes(conn)
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
	asks  []string // loops that are asked after the commit
	after []func()
}

// After has f called after the commit.
func (tx *Tx) After(f func()) { tx.after = append(tx.after, f) }

// InTx runs work in a transaction that acts for a tenant.
func (db *DB) InTx(ctx context.Context, tenant int32, work func(tx *Tx) error) error {
	limits, commit := db.limits(ctx)
	begin, err := db.BeginFor(ctx, begin+limits, tenant)
	if err != nil {
		return err
	}
	begun, err := db.Conns(ctx).BeginTx(ctx, pgx.TxOptions{BeginQuery: begin, CommitQuery: commit})
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	tx := &Tx{Tx: begun}
	// A separate context: the caller's may have ended, and the connection must be returned clean.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := work(tx); err != nil {
		return db.TookWrite(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return db.TookWrite(fmt.Errorf("committing: %w", err))
	}
	db.Ask(tx.asks...)
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
	part := &Tx{Tx: begun}
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
	DB     *DB
	Tenant int32
	Tx     *Tx // nil: each write has a transaction of its own
}

// InTx runs work in a transaction.
func (w Writes) InTx(ctx context.Context, work func(tx *Tx) error) error {
	if w.Tx != nil {
		return work(w.Tx)
	}
	return w.DB.InTx(ctx, w.Tenant, work)
}
