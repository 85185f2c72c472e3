package command

import (
	"fmt"
	"time"

	"punctual/store"
	"punctual/store/pg"
	"punctual/store/session"
)

// standby holds the flags that name a hot standby of the database.
type standby struct {
	ReadDatabaseURL          string        `env:"PUNCTUAL_READ_DATABASE_URL" placeholder:"postgres://…" help:"Hot standby of the database, one server, which answers reads of what is final. Default: none; the database answers all."`
	ReadDatabasePasswordFile string        `type:"path" placeholder:"FILE" help:"File with the standby's password, read whenever a connection is made."`
	MaxStaleness             time.Duration `default:"10s" help:"How far behind the database the standby may be: if it is further behind, the database answers."`
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
