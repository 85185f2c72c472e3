package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/migrations"
	"punctual/scheduler"
	"punctual/store/vault"
)

// Options says how to reach the database and what a definition's absent fields mean.
type Options struct {
	DatabaseURL   string        // postgres:// URL or key=value DSN
	DefaultJitter time.Duration // jitter of cron slots a minute or more apart that set none
	MaxConns      int32         // largest number of connections; 0: 16
	Replica       bool          // a replica's store: its connections are divided into parts, and what callers may wait for has limits
	Log           *slog.Logger
	Master        *vault.Master // opens and seals the keys of secrets; nil: a store that can neither read nor write any

	// Adopt makes any database that the store finds itself on the one that runs are dispatched from; otherwise one of
	// another name or system identifier than before is frozen.
	Adopt bool

	// Retention is how long runs are kept after their slot and their end, and how far back a missed slot
	// may still run; 0: DefaultRetention. Runs that did not succeed are kept for FailureRetention, at least
	// as long; 0: three times Retention. The same on every replica.
	Retention, FailureRetention time.Duration

	// AuditRetention is how long entries of the audit log are kept, at least LeastAuditRetention; 0:
	// DefaultAuditRetention. The same on every replica.
	AuditRetention time.Duration

	// PublicURL is where people reach the API, without a slash at its end: for links in notices. Empty: there are none.
	PublicURL string

	// Ended, if set, is told of attempts that were ended by other than the replica that made them: those of
	// lost replicas, and those that their targets worked on.
	Ended func([]scheduler.Outcome)
}

// Store is a pool of connections to one database. Safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool    // that of callers
	parts   [3]*pgxpool.Pool // by part; one and the same unless this is a replica's
	options Options
	jobs    *boundedCache[jobVersion, *scheduler.Job] // compiled definitions: immutable, so never stale
	wake    chan struct{}
	wary    wariest
	tidy    tidiness
	refused atomic.Pointer[refusal]
	used    usedKeys
	// backstop is row-level security, behind the filters of what is done for a tenant.
	backstop backstop

	endpoints endpoints
	guarding  atomic.Bool            // fencing tokens, against failovers
	tokenKey  atomic.Pointer[[]byte] // what run tokens are made with, once it was read

	idling      idling // of claims
	keyring     keyring
	credentials *credentials
	defaults    defaultsBook
}

// Open connects to the database, and fails when it cannot be reached.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(o.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w (an example: postgres://user:password@host:5432/database)", err)
	}
	if o.MaxConns == 0 {
		o.MaxConns = 16
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Retention == 0 {
		o.Retention = DefaultRetention
	}
	if o.FailureRetention == 0 {
		o.FailureRetention = 3 * o.Retention
	}
	if o.AuditRetention == 0 {
		o.AuditRetention = DefaultAuditRetention
	}
	s := &Store{options: o, wake: make(chan struct{}, 1), credentials: newCredentials(), jobs: newBoundedCache[jobVersion, *scheduler.Job](mostCompiled, compiledBytes)}
	config.AfterConnect = s.connected
	config.ConnConfig.DialFunc = dialer().DialContext
	s.endpoints.observe(&config.ConnConfig.Config)
	if config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// Unnamed statements: planned with the values at hand, never with a generic plan that turns the
		// due select into a sequential scan, and at home behind a transaction-mode PgBouncer. Statements that
		// are better off with one plan say so: see prepared.
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "punctual"
	}
	if err := s.connect(ctx, config); err != nil {
		s.Close()
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	return s, nil
}

// Close ends all connections and waits until those in use are returned.
func (s *Store) Close() {
	for _, pool := range s.parts {
		if pool != nil {
			pool.Close()
		}
	}
}

// Pool returns the connections that callers ask through.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Wake receives a value after this process wrote something that may be due at once, so that its
// scheduler need not wait for its next look. Other replicas find it within a second by themselves.
func (s *Store) Wake() <-chan struct{} { return s.wake }

func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it has been told already
	}
}

// SchemaError says that the database's schema does not fit this binary.
type SchemaError struct{ Have, Need int64 }

func (e *SchemaError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("the database has no Punctual schema and this binary needs version %d: run `punctual migrate`, or start with --migrate", e.Need)
	}
	return fmt.Sprintf("the database's schema is version %d and this binary needs %d: run `punctual migrate`, or start with --migrate", e.Have, e.Need)
}

// CheckSchema returns a *SchemaError when the database's schema is older than this binary needs. A newer
// one is fine: schema N serves binaries N-1 and N.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, err := migrations.Current(ctx, s.conns(forRuns.in(ctx)))
	if err != nil {
		return err
	}
	if need := migrations.Latest(); have < need {
		return &SchemaError{Have: have, Need: need}
	}
	return nil
}

// inTx runs work in a transaction that acts for a tenant.
func (s *Store) inTx(ctx context.Context, tenant int32, work func(tx pgx.Tx) error) error {
	limits, commit := s.limits(ctx)
	begin, err := s.beginFor(ctx, begin+limits, tenant)
	if err != nil {
		return err
	}
	tx, err := s.conns(ctx).BeginTx(ctx, pgx.TxOptions{BeginQuery: begin, CommitQuery: commit})
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	// A context of its own: the caller's may have ended, and the connection must come back clean.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := work(tx); err != nil {
		return s.tookWrite(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return s.tookWrite(fmt.Errorf("committing: %w", err))
	}
	return nil
}

// Errors that callers decide by.
var (
	ErrNotFound  = errors.New("not found")
	ErrNameTaken = errors.New("the name is taken by another job")
	// ErrVersion is a lost update: the job is no longer at the version the caller expected.
	ErrVersion = errors.New("the job has been changed since")
	// ErrState is an action that the job's state does not allow; it is wrapped with the reason.
	ErrState = errors.New("the state does not allow it")
	// ErrKeyReused is an Idempotency-Key that came before with another request.
	ErrKeyReused = errors.New("the Idempotency-Key was used before with another request")
	// ErrNotForSubmitters is a trigger by a submitter of a job that does not allow it.
	ErrNotForSubmitters = errors.New("submitters may not trigger it; an editor may, and may let them by submitters_may_trigger")
)
