package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/privatepg"
	"punctual/migrations"
	"punctual/store/session"
)

// scratch is a database whose schema punctual belongs to this process alone, which fills it and drops it.
type scratch struct {
	dsn     string
	private *privatepg.Server // nil: the user's database
	guard   *pgx.Conn         // its session holds the lock while this process uses the schema
	ours    bool              // the schema is ours, so drop it at the end
	unused  bool              // nothing has used the schema since it was created
	mark    string            // the comment on the schema
	notes   io.Writer

	postmaster int    // process id; 0: unknown
	noCPU      string // why the postmaster is unknown
}

const (
	// mark begins the comment on every schema that a bench creates. The text after it says what else may be dropped.
	mark         = "Scratch schema of punctual bench, to be dropped."
	markWithRole = mark + " The role punctual_reader was made with it."
	// guardKey is the key of the advisory lock that a bench holds while it lives.
	guardKey = 0x70756e6362656e63 // "puncbenc"

	cleanup = 2 * time.Minute // the longest that creating or dropping the schema may take
)

// InUseError says that the bench may not use the schema.
type InUseError struct{ Database, Found string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("--database-url: database %q %s; nothing was changed. "+
		"Give an empty database, such as one made by: createdb punctual_bench", e.Database, e.Found)
}

// openScratch creates an empty schema, in a private Postgres or in the user's database if that has no such schema.
func openScratch(
	ctx context.Context, dsn string, settings map[string]string, notes io.Writer,
) (_ *scratch, err error) {
	s := &scratch{dsn: dsn, notes: notes, mark: mark}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if dsn == "" {
		if err := s.startPrivate(ctx, settings); err != nil {
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

// startPrivate starts a Postgres that is as durable as one in production. Its directory is removed with it.
func (s *scratch) startPrivate(ctx context.Context, settings map[string]string) error {
	fmt.Fprintln(s.notes, "starting a private Postgres")
	// Below /tmp, not below a directory of this user: for root, Postgres runs as another user, who could not enter it.
	dir, err := os.MkdirTemp("", "punctual-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for a private Postgres: %w", err)
	}
	all := map[string]string{"max_connections": "300"}
	maps.Copy(all, settings)
	s.private, err = privatepg.Start(ctx, privatepg.Config{Dir: dir, Ephemeral: true, Settings: all})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	s.dsn = s.private.DSN("postgres")
	return nil
}

// connect connects with an application name that differs from a replica's.
func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	config, err := session.Database{URL: dsn}.Config()
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["application_name"] = "punctual bench"
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if err := session.Settle(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// durable refuses a database that confirms a commit before it is safe on disk: its figures could not be compared with
// others.
func (s *scratch) durable(ctx context.Context) error {
	for _, setting := range []string{"synchronous_commit", "fsync"} {
		var value string
		if err := s.guard.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
			return err
		}
		if value != "on" {
			return fmt.Errorf("--database-url: %s is %s, so the figures would be those of commits that can be lost: "+
				"set it to on", setting, value)
		}
	}
	return nil
}

// take locks out other benches, removes the schema of a former bench, and creates a new one.
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
		s.mark = comment // and with the role, if the former bench created it
		if err := s.drop(ctx, s.guard); err != nil {
			return err
		}
	}
	var role bool
	if err := s.guard.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'punctual_reader')`).Scan(&role); err != nil {
		return err
	}
	s.mark, s.unused = mark, true
	if !role {
		s.mark = markWithRole
	}
	return s.create(ctx)
}

// look takes the lock if it is free, and reads whether the schema exists and its comment.
func (s *scratch) look(ctx context.Context, conn *pgx.Conn) (locked, found bool, comment string, err error) {
	// This session may be idle for hours: it only holds the lock.
	if _, err := conn.Exec(ctx, `SET idle_session_timeout = 0`); err != nil {
		return false, false, "", err
	}
	if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(guardKey)).Scan(&locked); err != nil {
		return false, false, "", err
	}
	found, comment, err = lookAt(ctx, conn, "punctual")
	return locked, found, comment, err
}

// lookAt reads whether a schema exists, and its comment.
func lookAt(ctx context.Context, conn *pgx.Conn, schema string) (found bool, comment string, err error) {
	err = conn.QueryRow(ctx, `
		SELECT coalesce(obj_description(oid, 'pg_namespace'), '')
		FROM pg_namespace
		WHERE nspname = $1`, schema).Scan(&comment)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, "", nil
	}
	return err == nil, comment, err
}

// contents describes a schema that is not the bench's.
func (s *scratch) contents(ctx context.Context) string {
	var jobs int64
	if err := s.guard.QueryRow(ctx, `SELECT count(*) FROM punctual.jobs`).Scan(&jobs); err != nil {
		return "which no bench has made"
	}
	return fmt.Sprintf("an installation of Punctual with %d jobs", jobs)
}

// create creates the schema with its mark, in one transaction. An interrupt does not break it off: the server would go
// on, and create the schema after this process has looked for it.
func (s *scratch) create(interrupted context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(interrupted), cleanup)
	defer cancel()
	s.ours = true
	sql := `CREATE SCHEMA punctual; COMMENT ON SCHEMA punctual IS '` + s.mark + `'`
	_, err := s.guard.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol) // several statements, one transaction
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "42P06" {
		s.ours = false
		return &InUseError{s.guard.Config().Database, "has got a schema punctual in this very moment"}
	}
	if err == nil {
		_, err = migrations.Up(ctx, s.dsn)
	}
	if err != nil {
		return fmt.Errorf("making the schema punctual: %w", err)
	}
	return interrupted.Err()
}

// fresh makes the schema empty again.
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

// drop drops the schema. It drops partitions one by one first: dropping all at once may need more locks than the lock
// table holds. An interrupt does not break it off, as with create.
func (s *scratch) drop(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	const partitions = `SELECT 'DROP TABLE IF EXISTS ' || inhrelid::regclass::text
		FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
		WHERE c.relispartition AND c.relkind = 'r' AND c.relnamespace = 'punctual'::regnamespace`
	rows, _ := conn.Query(ctx, partitions) // CollectRows returns the error
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("removing the schema punctual: %w", err)
	}
	for _, sql := range append(statements, `DROP SCHEMA IF EXISTS punctual CASCADE`) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("removing the schema punctual: %w", err)
		}
	}
	if s.mark == markWithRole { // refused if another database of the server uses the role by now, which is right
		_, _ = conn.Exec(ctx, `DROP ROLE IF EXISTS punctual_reader`)
	}
	return nil
}

// close removes everything that the bench made. The context of the measurement may have ended.
func (s *scratch) close() error {
	if s.private != nil || !s.ours {
		return s.stop() // the whole private Postgres is thrown away
	}
	err := s.drop(context.Background(), s.guard)
	if err != nil && s.guard.IsClosed() {
		err = s.dropAnew()
	}
	if err != nil {
		err = fmt.Errorf("%w; the next bench of this database will remove it, or: DROP SCHEMA punctual CASCADE", err)
	}
	return errors.Join(err, s.stop())
}

// dropAnew drops the schema after the guard's session, and with it the lock, was lost: another bench may have taken
// over since.
func (s *scratch) dropAnew() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
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

// stop closes the connection, and removes the private Postgres with its directory.
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
