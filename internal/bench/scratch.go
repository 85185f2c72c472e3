package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/privatepg"
	"punctual/migrations"
)

// scratch is a database whose schema punctual belongs to this process alone, to fill and to throw away.
type scratch struct {
	dsn     string
	private *privatepg.Server // nil: the user's database
	guard   *pgx.Conn         // holds the lock for as long as this process uses the schema
	ours    bool              // the schema, to be removed
	unused  bool              // the schema is as it was made
	mark    string            // the comment on the schema
	notes   io.Writer

	postmaster int    // process id; 0: not known
	noCPU      string // why it is not known
}

const (
	// mark begins the comment on a schema that a bench made; what else it may drop is said after it.
	mark         = "Scratch schema of punctual bench, to be dropped."
	markWithRole = mark + " The role punctual_reader was made with it."
	// guardKey is that of the advisory lock a bench holds while it lives.
	guardKey = 0x70756e6362656e63 // "puncbenc"

	cleanup = 2 * time.Minute // the most that removing the schema may take
)

// InUseError says that the schema is not the bench's to use.
type InUseError struct{ Database, Found string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("--database-url: database %q %s; nothing was changed. Give an empty database, such as one made by: createdb punctual_bench", e.Database, e.Found)
}

// openScratch makes an empty schema, in a private Postgres or in the user's database if that has none.
func openScratch(ctx context.Context, dsn string, notes io.Writer) (_ *scratch, err error) {
	s := &scratch{dsn: dsn, notes: notes, mark: mark}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if dsn == "" {
		if err := s.startPrivate(ctx); err != nil {
			return nil, err
		}
	}
	if s.guard, err = connect(ctx, s.dsn); err != nil {
		return nil, fmt.Errorf("--database-url: %w", err)
	}
	if err := s.durable(ctx); err != nil {
		return nil, err
	}
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	return s, s.findPostmaster(ctx)
}

// startPrivate starts a Postgres that is as durable as in production. Its directory goes with it.
func (s *scratch) startPrivate(ctx context.Context) error {
	fmt.Fprintln(s.notes, "starting a private Postgres")
	// Below /tmp and not in a directory of this user's: as root, Postgres runs as another.
	dir, err := os.MkdirTemp("", "punctual-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for a private Postgres: %w", err)
	}
	s.private, err = privatepg.Start(ctx, privatepg.Config{Dir: dir, Ephemeral: true, Settings: map[string]string{"max_connections": "300"}})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.dsn = s.private.DSN("postgres")
	return nil
}

// connect connects as somebody who can be told from replicas.
func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = "punctual bench"
	return pgx.ConnectConfig(ctx, config)
}

// durable refuses a database that answers before what it was given is safe: nothing could be compared with it.
func (s *scratch) durable(ctx context.Context) error {
	for _, setting := range []string{"synchronous_commit", "fsync"} {
		var value string
		if err := s.guard.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("--database-url: %s is %s, so the figures would be those of commits that can be lost: set it to on", setting, value)
		}
	}
	return nil
}

// take locks out other benches, removes what a former one has left, and makes the schema.
func (s *scratch) take(ctx context.Context) error {
	locked, found, comment, err := s.look(ctx, s.guard)
	if err != nil {
		return err
	}
	database := s.guard.Config().Database
	switch {
	case !locked:
		return &InUseError{database, "is in use by another punctual bench"}
	case found && !strings.HasPrefix(comment, mark):
		return &InUseError{database, "has a schema punctual already, " + s.contents(ctx)}
	case found:
		s.ours = true
		fmt.Fprintf(s.notes, "removing the schema punctual that a former bench left behind in database %q\n", database)
		s.mark = comment // with the role if it had made that
		if err := s.drop(ctx, s.guard); err != nil {
			return err
		}
	}
	var role bool
	if err := s.guard.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader')`).Scan(&role); err != nil {
		return err
	}
	s.mark, s.unused = mark, true
	if !role {
		s.mark = markWithRole
	}
	return s.create(ctx)
}

// look takes the lock, if it is free, and reads what the schema is.
func (s *scratch) look(ctx context.Context, conn *pgx.Conn) (locked, found bool, comment string, err error) {
	// A session that does nothing for hours but hold the lock.
	if _, err := conn.Exec(ctx, `SET idle_session_timeout = 0`); err != nil {
		return false, false, "", err
	}
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(guardKey)).Scan(&locked); err != nil {
		return false, false, "", err
	}
	err = conn.QueryRow(ctx, `SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = 'punctual'`).Scan(&comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return locked, false, "", nil
	}
	return locked, true, comment, err
}

// contents says what is in a schema that is somebody else's.
func (s *scratch) contents(ctx context.Context) string {
	var jobs int64
	if err := s.guard.QueryRow(ctx, `SELECT count(*) FROM punctual.jobs`).Scan(&jobs); err != nil {
		return "which no bench has made"
	}
	return fmt.Sprintf("an installation of Punctual with %d jobs", jobs)
}

// create makes the schema, marked from its first moment.
func (s *scratch) create(ctx context.Context) error {
	s.ours = true
	sql := `CREATE SCHEMA punctual; COMMENT ON SCHEMA punctual IS '` + s.mark + `'`
	_, err := s.guard.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol) // several statements, one transaction
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42P06" {
		s.ours = false
		return &InUseError{s.guard.Config().Database, "has got a schema punctual in this very moment"}
	}
	if err != nil {
		return fmt.Errorf("making the schema punctual: %w", err)
	}
	if _, err := migrations.Up(ctx, s.dsn); err != nil {
		return fmt.Errorf("making the schema punctual: %w", err)
	}
	return nil
}

// fresh makes the schema as it was in the beginning.
func (s *scratch) fresh(ctx context.Context) error {
	if s.unused {
		s.unused = false
		return nil
	}
	if err := s.drop(ctx, s.guard); err != nil {
		return err
	}
	return s.create(ctx)
}

// drop removes the schema, partitions one by one first: all at once they may be more than the lock table holds.
func (s *scratch) drop(ctx context.Context, conn *pgx.Conn) error {
	const partitions = `SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE c.relkind = 'r' AND c.relnamespace = 'punctual'::regnamespace`
	rows, err := conn.Query(ctx, partitions)
	if err != nil {
		return fmt.Errorf("removing the schema punctual: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("removing the schema punctual: %w", err)
	}
	statements := make([]string, 0, len(tables)+1)
	for _, table := range tables {
		statements = append(statements, `DROP TABLE IF EXISTS `+table)
	}
	for _, sql := range append(statements, `DROP SCHEMA IF EXISTS punctual CASCADE`) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("removing the schema punctual: %w", err)
		}
	}
	if s.mark == markWithRole { // refused where somebody else uses it by now, which is as it should be
		_, _ = conn.Exec(ctx, `DROP ROLE IF EXISTS punctual_reader`)
	}
	return nil
}

// close removes everything that was made. The context of the measurement may have ended.
func (s *scratch) close() error {
	if s.private != nil || !s.ours {
		return s.stop() // all of a private Postgres is thrown away
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	err := s.drop(ctx, s.guard)
	if err != nil && s.guard.IsClosed() {
		err = s.dropAnew(ctx)
	}
	if err != nil {
		err = fmt.Errorf("%w; the next bench of this database will remove it, or: DROP SCHEMA punctual CASCADE", err)
	}
	return errors.Join(err, s.stop())
}

// dropAnew is drop when the guard is gone, and with it the lock: another bench may have come since.
func (s *scratch) dropAnew(ctx context.Context) error {
	conn, err := connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	locked, found, comment, err := s.look(ctx, conn)
	if err != nil || !locked || !found || !strings.HasPrefix(comment, mark) {
		return err
	}
	return s.drop(ctx, conn)
}

// stop ends the connection, and the private Postgres with its directory.
func (s *scratch) stop() error {
	if s.guard != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.guard.Close(ctx)
	}
	if s.private != nil {
		return s.private.Stop()
	}
	return nil
}
