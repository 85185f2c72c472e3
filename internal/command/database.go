// Package command holds the subcommands of the binary: their flags, the checks of the flags, and what they do. Those
// that run a replica call package server.
package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/user"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/migrations"
	"punctual/store"
	"punctual/store/audit"
	"punctual/store/pg"
	"punctual/store/session"
	"punctual/store/vault"
)

// database holds the flags that name the Postgres database.
type database struct {
	DatabaseURL string `env:"PUNCTUAL_DATABASE_URL,DATABASE_URL" placeholder:"postgres://…" help:"Required. Postgres 15 or newer, direct or through PgBouncer: postgres://user:password@host:5432/database."`

	DatabasePasswordFile string `type:"path" placeholder:"FILE" help:"File with the database's password, read at each connect, instead of a password in the URL. For passwords that expire, such as IAM tokens."`
}

// on returns options for a store on the database.
func (d database) on(options store.Options) store.Options {
	options.DatabaseURL, options.PasswordFile = d.DatabaseURL, d.DatabasePasswordFile
	return options
}

// Validate is called by the flag parser.
func (d database) Validate() error {
	if d.DatabaseURL == "" {
		return errors.New("no database is named: set DATABASE_URL, or give --database-url=" + exampleURL)
	}
	return nil
}

const exampleURL = "postgres://user:password@host:5432/database" //nolint:gosec // nobody's password

// databaseError says in one line what is wrong with the database. pgx writes a line for each address that it tried.
type databaseError struct {
	flag, text string
	err        error
}

func (e *databaseError) Error() string { return e.flag + ": " + e.text }
func (e *databaseError) Unwrap() error { return e.err }

// naming adds the flag to an error that is caused by the flag's value.
func naming(err error) error {
	var malformed *pgconn.ParseConfigError
	var unreachable *pgconn.ConnectError
	var file *session.PasswordFileError
	var encoding *session.EncodingError
	var pooled *session.PooledSettingError
	switch {
	case errors.As(err, &file):
		return &databaseError{"--database-password-file", file.Error(), err}
	case errors.As(err, &encoding):
		return &databaseError{"--database-url", encoding.Error(), err}
	case errors.As(err, &pooled):
		return &databaseError{"--database-url", pooled.Error(), err}
	case errors.As(err, &malformed):
		return &databaseError{"--database-url", OneLine(malformed) + "; write " + exampleURL, err}
	case errors.As(err, &unreachable):
		c := unreachable.Config
		return &databaseError{
			"--database-url",
			fmt.Sprintf("cannot connect to database %q at %s as user %q: %s", c.Database, addresses(c), c.User,
				whyUnreachable(unreachable)),
			err,
		}
	case errors.Is(err, vault.ErrMaster):
		return fmt.Errorf("--master-key-file: no given key is the master key that encrypts the secrets "+
			"in this database: %w", err)
	}
	return err
}

// addresses returns the hosts and ports that pgx tried to connect to.
func addresses(c *pgconn.Config) string {
	list := []string{address(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if at := address(f.Host, f.Port); at != list[len(list)-1] { // pgx tries an address again without TLS: list it once
			list = append(list, at)
		}
	}
	return strings.Join(list, ", ")
}

func address(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return fmt.Sprintf("%s/.s.PGSQL.%d", host, port)
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

// whyUnreachable returns the cause alone, without the context that pgx and net put around it.
func whyUnreachable(err error) string {
	var refused *pgconn.PgError
	var name *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.As(err, &refused):
		return refused.Message
	case errors.As(err, &name) && name.IsNotFound:
		return "no such host"
	case errors.As(err, &name):
		return "the host name cannot be resolved right now"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	}
	return OneLine(err)
}

// Migrate brings the schema up to date.
type Migrate struct{ database }

// Run applies the migrations.
func (c *Migrate) Run(ctx context.Context, log *slog.Logger) error {
	applied, err := migrations.UpOn(ctx, session.Database{URL: c.DatabaseURL, PasswordFile: c.DatabasePasswordFile})
	for _, m := range applied {
		log.Info("migrated", "version", m.Version, "took", m.Duration.Round(time.Millisecond))
	}
	if err != nil {
		return naming(err)
	}
	log.Info("the schema is up to date", "version", migrations.Latest())
	return nil
}

// administer runs work on the database, on behalf of the logged-in user.
func (d database) administer(ctx context.Context, work func(context.Context, *store.Store) error) error {
	options := d.on(store.Options{MaxConns: 2, Log: slog.New(slog.DiscardHandler)})
	return naming(onDatabase(ctx, options, func(db *store.Store) error {
		return work(audit.WithActor(ctx, audit.Actor{Kind: audit.Command, Name: login()}), db)
	}))
}

// onDatabase runs work on a database whose schema fits.
func onDatabase(ctx context.Context, options store.Options, work func(*store.Store) error) error {
	db, err := store.Open(ctx, options)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	return work(db)
}

// login returns the name of the operating system's user.
func login() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// standby holds the flags that name a hot standby of the database.
type standby struct {
	ReadDatabaseURL          string        `env:"PUNCTUAL_READ_DATABASE_URL" placeholder:"postgres://…" help:"Hot standby of the database, one server, which answers reads of what is final. Default: none; the database answers all."`
	ReadDatabasePasswordFile string        `type:"path" placeholder:"FILE" help:"File with the standby's password, read at each connect."`
	MaxStaleness             time.Duration `default:"10s" help:"How far behind the standby may be before the database answers instead."`
}

// beside returns options for a store that also reads from the standby.
func (s standby) beside(options store.Options) store.Options {
	options.Standby = pg.Standby{
		URL: s.ReadDatabaseURL, PasswordFile: s.ReadDatabasePasswordFile, MaxStaleness: s.MaxStaleness,
	}
	return options
}

// Validate is called by the flag parser.
func (s standby) Validate() error {
	fits := s.MaxStaleness >= time.Second && s.MaxStaleness <= time.Hour
	if err := within(fits, "--max-staleness", s.MaxStaleness, "1s to 1h"); err != nil || s.ReadDatabaseURL == "" {
		return err
	}
	if _, err := (session.Database{URL: s.ReadDatabaseURL}).Config(); err != nil {
		return fmt.Errorf("--read-database-url: %s; write %s", OneLine(err), exampleURL)
	}
	return nil
}
