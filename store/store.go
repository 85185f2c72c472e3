package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/migrations"
	"punctual/scheduler/credential"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/trace"
	"punctual/store/archive"
	"punctual/store/aside"
	"punctual/store/audit"
	"punctual/store/changes"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/events"
	"punctual/store/fences"
	"punctual/store/fleet"
	"punctual/store/flow"
	"punctual/store/freeze"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/links"
	"punctual/store/notices"
	"punctual/store/overview"
	"punctual/store/pg"
	"punctual/store/replicas"
	"punctual/store/reports"
	"punctual/store/runs"
	"punctual/store/seal"
	"punctual/store/secrets"
	"punctual/store/tenants"
	"punctual/store/vault"
)

// DefaultRetention is how long runs are kept unless Options says otherwise.
const DefaultRetention = 30 * 24 * time.Hour

// Options says how to reach the database and what the absent fields of a definition mean.
type Options struct {
	DatabaseURL   string        // postgres:// URL or key=value DSN
	PasswordFile  string        // holds the database's password, and is read whenever a connection is made; empty: none
	DefaultJitter time.Duration // jitter of cron slots a minute or more apart whose definition sets none
	MaxConns      int32         // most connections; 0: 16
	Replica       bool          // for a replica: connections are divided into parts, and callers' waits are limited
	Standby       pg.Standby    // answers reads of the past, if it has a URL
	Log           *slog.Logger
	Master        *vault.Master // opens and seals the keys of secrets; nil: the store can neither read nor write secrets

	// Sealed has payloads encrypted as they are written: bodies, results, responses. Whether they are or not, what is
	// encrypted is readable with the master key. Every replica must have the same value.
	Sealed bool

	// Adopt makes the database that the store finds itself on the one that runs are dispatched from. Otherwise a database
	// with another name or system identifier than before is frozen.
	Adopt bool

	// Retention is how long runs are kept after their slot and their end, and how old a missed slot may be and still
	// run; 0: DefaultRetention. Runs that did not succeed are kept for FailureRetention, which is at least as long; 0:
	// three times Retention. Every replica must have the same values.
	Retention, FailureRetention time.Duration

	// ArchiveCommand archives a day of runs before it is dropped: see archive.Options. Every replica must have the same.
	ArchiveCommand string
	Version        string // of this binary

	// AuditRetention is how long entries of the audit log are kept, at least audit.LeastRetention; 0:
	// audit.DefaultRetention. Every replica must have the same value.
	AuditRetention time.Duration

	// MaxKeyAge is how long a new API key may work, whatever its tenant allows; 0: no limit. Every replica must have the
	// same value.
	MaxKeyAge time.Duration

	// PublicURL is where people reach the API, without a trailing slash. Notices link to it. Empty: they have no links.
	PublicURL string
	// NoticeLabels are the labels of jobs that notices carry.
	NoticeLabels []string
	Pages        bool // notices link to the pages there, and not to the API

	// Ended, if set, is told of attempts that another replica than their own has ended: those of lost replicas, and those
	// that their targets worked on.
	Ended func([]domain.Outcome)

	Tracer *trace.Tracer // makes spans of what ends here; nil: none are made
}

// Store wires the rooms that work on one database. Safe for concurrent use.
type Store struct {
	DB          *pg.DB // its pools and connections
	Archives    *archive.Archives
	Aside       *aside.Aside
	Audit       *audit.Log
	Changes     *changes.Changes
	Claims      *claim.Claims
	Days        *days.Days // the daily partitions of runs
	Definitions *definitions.Definitions
	Events      *events.Events
	Fleet       *fleet.Fleet
	Freezes     *freeze.Switch
	History     *history.History
	Jobs        *jobs.Jobs
	Letters     *letters.Letters
	Limits      *limits.Limits
	Notices     *notices.Notifier
	Overview    *overview.Board
	Replicas    *replicas.Replicas // a scheduler.Store
	Reports     *reports.Reports
	Runs        *runs.Runs
	Secrets     *secrets.Secrets // a credential.Source
	Tenants     *tenants.Tenants
	Workflows   *flow.Workflows

	// Options are those of Open, with the defaults of absent ones.
	Options Options

	defaults  *notices.Book
	tidying   tidying
	snapshots snapshots
}

var _ credential.Source = (*secrets.Secrets)(nil)

// Open connects to the database. It fails if the database cannot be reached.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.FailureRetention = cmp.Or(o.FailureRetention, 3*o.Retention)
	o.AuditRetention = cmp.Or(o.AuditRetention, audit.DefaultRetention)
	sealer := seal.New(o.Sealed)
	s := &Store{
		Options:     o,
		Definitions: definitions.New(o.DefaultJitter, o.Retention, sealer),
	}
	var err error
	s.DB, err = pg.Open(ctx, pg.Config{
		URL: o.DatabaseURL, PasswordFile: o.PasswordFile, MaxConns: o.MaxConns, Replica: o.Replica, Standby: o.Standby,
		Log: o.Log, Sealer: sealer,
	})
	if err != nil {
		return nil, err
	}
	s.Aside = aside.New(s.DB, o.Log)
	s.Freezes = freeze.New(s.DB, freeze.Options{Log: o.Log, Adopt: o.Adopt})
	s.Secrets = secrets.New(s.DB, o.Master)
	sealer.Use(s.Secrets.PayloadKeys())
	s.defaults = new(notices.Book)
	s.Tenants = tenants.New(s.DB, s.defaults, s.Secrets, o.MaxKeyAge, o.Log)
	s.Notices = notices.NewNotifier(s.DB, s.Definitions, s.Aside, notices.Options{
		Log: o.Log, PublicURL: o.PublicURL, Pages: o.Pages, Labels: o.NoticeLabels,
	})
	s.Audit = audit.New(s.DB, o.AuditRetention)
	s.Changes = changes.New(s.DB)
	s.Archives = archive.New(s.DB, archive.Options{Log: o.Log, Command: o.ArchiveCommand, Version: o.Version})
	s.Days = days.New(s.DB, s.Archives, o.Retention, o.FailureRetention, o.Log)
	guard, reporting := fences.New(s.DB, o.Log), new(reports.Follower)
	s.Claims = claim.New(claim.Rooms{
		DB: s.DB, Days: s.Days, Freezes: s.Freezes, Definitions: s.Definitions, Aside: s.Aside, Fences: guard,
		Followers: []claim.Follower{reporting, links.Follower, s.defaults, flow.Follower}, Overdue: flow.Overdue,
	}, claim.Options{Log: o.Log, Ended: o.Ended, Tracer: o.Tracer, Soon: choresSoon, Always: choresAlways})
	s.Replicas = replicas.New(s.DB, s.Claims, s.Freezes, s.Definitions, guard, replicas.Options{
		Log: o.Log, ChoresDue: choresDue, Chores: choresAsked,
		Learners: []replicas.Learner{reporting, s.defaults, s.Secrets},
	})
	s.Workflows = flow.New(s.DB, s.Claims, s.Definitions, s.Aside, o.Log)
	s.Events = events.New(s.DB, s.Days, s.Aside, events.Options{Log: o.Log, Kept: o.FailureRetention})
	s.Fleet = fleet.New(s.DB.Callers)
	s.History = history.New(s.DB.Callers, o.DefaultJitter)
	s.Limits = limits.New(s.DB.Callers)
	s.Overview = overview.New(s.DB)
	s.Reports = reports.New(s.DB, s.Claims, s.Aside)
	s.Runs = runs.New(s.DB, s.Claims, s.Definitions)
	s.Jobs = jobs.New(s.DB, s.Claims, s.Definitions, s.Secrets, s.Aside, jobs.Options{
		Log: o.Log, DefaultJitter: o.DefaultJitter, Retention: o.Retention,
	})
	s.Letters = letters.New(s.DB, s.Days, s.Definitions, s.Jobs, s.Aside, letters.Options{
		Log: o.Log, DefaultJitter: o.DefaultJitter, Retention: o.Retention,
	})
	return s, nil
}

// Close ends all connections and waits until those in use are returned.
func (s *Store) Close() { s.DB.Close() }

// Pool returns the pool of connections for callers.
func (s *Store) Pool() *pg.Pool { return s.DB.Callers }

// Endpoints returns the addresses of the database: see pg.DB.
func (s *Store) Endpoints() []netip.AddrPort { return s.DB.Endpoints() }

// Backstop reports whether row-level security is in force: see pg.Pool.
func (s *Store) Backstop(ctx context.Context) (bool, error) { return s.DB.Callers.Backstop(ctx) }

// CheckTenants returns a *pg.ActingError if the database refuses what is done for tenants: see pg.Pool.
func (s *Store) CheckTenants(ctx context.Context) error { return s.DB.Runs.CheckTenants(ctx) }

// WarnOfLocks logs a warning if the lock table of Postgres may be too small for the days that are kept.
func (s *Store) WarnOfLocks(ctx context.Context) {
	connections := 0
	s.DB.Stats(func(_ string, stat *pgxpool.Stat) { connections += int(stat.MaxConns()) })
	s.Days.WarnOfLocks(ctx, connections)
}

// CheckWrites returns a *pg.WriteError if the database takes no writes: see pg.DB.
func (s *Store) CheckWrites() error { return s.DB.CheckWrites() }

// HasStandby reports whether reads of the past may go to a standby.
func (s *Store) HasStandby() bool { return s.Options.Standby.URL != "" }

// Position returns a place in the database's log behind all that was committed until now: see pg.Pool.
func (s *Store) Position(ctx context.Context) pg.Position { return s.DB.Callers.Position(ctx) }

// Now returns the database's clock: the only one that decides anything about schedules.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return pg.Clock(ctx, s.DB.Callers) }

// SchemaError says that the database's schema does not fit this binary.
type SchemaError struct{ Have, Need int64 }

func (e *SchemaError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf(
			"the database has no Punctual schema and this binary needs version %d: run `punctual migrate`, or start with --migrate",
			e.Need)
	}
	return fmt.Sprintf(
		"the database's schema is version %d and this binary needs %d: run `punctual migrate`, or start with --migrate",
		e.Have, e.Need)
}

// CheckSchema returns a *SchemaError if the database's schema is older than this binary needs. A newer schema is fine:
// schema N serves binaries N-1 and N.
func (s *Store) CheckSchema(ctx context.Context) error {
	have, err := migrations.Current(ctx, s.DB.Runs)
	if err != nil {
		return err
	}
	if need := migrations.Latest(); have < need {
		return &SchemaError{Have: have, Need: need}
	}
	return nil
}

// Errors that callers act on.
var (
	ErrNotFound = pg.ErrNotFound
	ErrState    = pg.ErrState
	// ErrKeyReused says that an Idempotency-Key came before with another request.
	ErrKeyReused error = &jobspec.Refusal{
		Code: "idempotency_key_reused", Reason: "the Idempotency-Key was used before with another request", Around: true,
	}
)
