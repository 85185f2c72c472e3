// Package command is the subcommands of the binary: their flags, what is wrong with these, and what they call.
package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/vault"
)

// database is how to reach Postgres.
type database struct {
	DatabaseURL string `env:"PUNCTUAL_DATABASE_URL,DATABASE_URL" placeholder:"postgres://…" help:"Required. Postgres 15 or newer, direct or through PgBouncer: postgres://user:password@host:5432/database."`
}

// Validate is called by the flag parser.
func (d database) Validate() error {
	if d.DatabaseURL == "" {
		return errors.New("no database is named: set DATABASE_URL, or give --database-url=" + exampleURL)
	}
	return nil
}

const exampleURL = "postgres://user:password@host:5432/database" //nolint:gosec // nobody's password

// databaseError says in one line what is wrong with the database. pgx names every address it tried, in a line each.
type databaseError struct {
	text string
	err  error
}

func (e *databaseError) Error() string { return "--database-url: " + e.text }
func (e *databaseError) Unwrap() error { return e.err }

// naming adds the flag to errors that its value is behind.
func naming(err error) error {
	var malformed *pgconn.ParseConfigError
	var unreachable *pgconn.ConnectError
	switch {
	case errors.As(err, &malformed):
		return &databaseError{OneLine(malformed) + "; write " + exampleURL, err}
	case errors.As(err, &unreachable):
		c := unreachable.Config
		return &databaseError{fmt.Sprintf("cannot connect to database %q at %s as user %q: %s", c.Database, addresses(c), c.User, whyUnreachable(unreachable)), err}
	case errors.Is(err, vault.ErrMaster):
		return fmt.Errorf("--master-key-file: none of its keys is the one that the secrets in this database are encrypted under: %w", err)
	}
	return err
}

// addresses are the hosts and ports that a connection was tried at.
func addresses(c *pgconn.Config) string {
	list := []string{address(c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if at := address(f.Host, f.Port); at != list[len(list)-1] { // the same again without TLS
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

// whyUnreachable is the reason alone, without what pgx and net say about the way to it.
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
