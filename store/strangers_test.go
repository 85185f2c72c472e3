package store_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	. "punctual/internal/storetest"
	"punctual/store"
)

// Another deployment shares the tenants' role. The log has the statements that keep it out.
//
// It is in the same cluster. The log names its user, too.
//
//prove:tenants
func TestAnotherDeploymentInTheClusterIsKeptOut(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	dsn := pgtest.Database(t, server)
	log := func() string {
		t.Helper()
		var log bytes.Buffer
		s := OpenStore(t, store.Options{DatabaseURL: dsn, Log: slog.New(slog.NewTextHandler(&log, nil))})
		defer s.Close()
		if on, err := s.Backstop(t.Context()); !on || err != nil {
			t.Fatalf("%v, %v", on, err)
		}
		return log.String()
	}
	c := NewFixtureOn(t, dsn)
	c.Create("job")
	config := c.DB.Callers.Config().ConnConfig
	super := c.Superuser(server)
	change := func(sql string) {
		t.Helper()
		if _, err := super.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if said := log(); said != "" {
		t.Errorf("of a deployment that is alone: %s", said)
	}
	change(`CREATE ROLE another LOGIN PASSWORD 'test'; GRANT punctual_tenant TO another`)
	enter := func() (jobs int, err error) {
		other := config.Copy()
		other.User = "another"
		conn, err := pgx.ConnectConfig(t.Context(), other)
		if err != nil {
			return 0, err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), `SET ROLE punctual_tenant; SET punctual.tenant = '1'`)
		if err != nil {
			return 0, err
		}
		err = conn.QueryRow(t.Context(), `SELECT count(*) FROM punctual.jobs`).Scan(&jobs)
		return jobs, err
	}
	if jobs, err := enter(); err != nil || jobs != 1 {
		t.Fatalf("the other deployment's user sees %d jobs, %v: there is nothing to warn of", jobs, err)
	}
	said := log()
	if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, "roles=another ") {
		t.Errorf("the log says %q", said)
	}
	_, statements, _ := strings.Cut(said, `statements="`)
	statements, _, _ = strings.Cut(statements, `"`+"\n")
	change(strings.ReplaceAll(statements, `\"`, `"`))
	if jobs, err := enter(); err == nil {
		t.Errorf("the other deployment's user still sees %d jobs", jobs)
	}
	if said := log(); said != "" {
		t.Errorf("it is kept out, and the log says %q", said)
	}
}
