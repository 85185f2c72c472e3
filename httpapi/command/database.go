// Package command is the subcommands of the binary: their flags, what is wrong with these, and what they call.
package command

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"punctual/store/vault"
)

// database is how to reach Postgres.
type database struct {
	DatabaseURL string `required:"" env:"PUNCTUAL_DATABASE_URL,DATABASE_URL" placeholder:"postgres://…" help:"Postgres 15 or newer, direct or through PgBouncer: postgres://user:password@host:5432/database."`
}

// naming adds the flag to errors that its value is behind.
func naming(err error) error {
	var malformed *pgconn.ParseConfigError
	var unreachable *pgconn.ConnectError
	if errors.As(err, &malformed) || errors.As(err, &unreachable) {
		return fmt.Errorf("--database-url: %w", err)
	}
	if errors.Is(err, vault.ErrMaster) {
		return fmt.Errorf("--master-key-file: it is not the key that the secrets in this database are encrypted under, nor is any line of it: %w", err)
	}
	return err
}
