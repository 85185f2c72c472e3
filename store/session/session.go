package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database says where a database is and how to log in.
type Database struct {
	URL string // postgres:// URL or key=value DSN
	// PasswordFile holds the password. It is read whenever a connection is made, as passwords may expire. Empty: the
	// password is that of the URL.
	PasswordFile string
}

// Name is the application_name of sessions whose URL gives no other.
const Name = "punctual"

// pinned are the settings that a session begins with. PgBouncer knows exactly these, and sets them for each client.
var pinned = map[string]string{
	"client_encoding":             "UTF8",
	"datestyle":                   "ISO",
	"timezone":                    "UTC",
	"standard_conforming_strings": "on",
}

// Config returns the configuration of connections to the database. Its AfterConnect is Settle.
func (d Database) Config() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w (an example: postgres://user:password@host:5432/database)", err)
	}
	config.ConnConfig.DialFunc = dialer().DialContext
	params := config.ConnConfig.RuntimeParams
	maps.DeleteFunc(params, func(name, _ string) bool { return pinned[strings.ToLower(name)] != "" })
	maps.Copy(params, pinned)
	params["application_name"] = cmp.Or(params["application_name"], Name)
	config.AfterConnect = Settle
	if d.PasswordFile != "" {
		config.BeforeConnect = d.readPassword
	}
	return config, nil
}

// PasswordFileError says that the file of the password cannot be read.
type PasswordFileError struct{ Err error }

func (e *PasswordFileError) Error() string {
	return "reading the database's password: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *PasswordFileError) Unwrap() error { return e.Err }

func (d Database) readPassword(_ context.Context, config *pgx.ConnConfig) error {
	text, err := os.ReadFile(d.PasswordFile)
	if err != nil {
		return &PasswordFileError{err}
	}
	config.Password = strings.TrimRight(string(text), "\r\n")
	return nil
}
