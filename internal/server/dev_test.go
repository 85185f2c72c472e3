package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	"punctual/migrations"
)

// A data directory that another edition of the schema has used goes on being usable, and keeps what it has.
func TestDevHasADatabaseForEachEditionOfTheSchema(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, privatepg.Config{Fast: true})
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `CREATE SCHEMA punctual`); err != nil { // as an earlier version did
		t.Fatal(err)
	}
	for _, says := range []bool{true, false} { // once
		var lines bytes.Buffer
		name, err := devDatabase(t.Context(), server, slog.New(slog.NewTextHandler(&lines, nil)))
		if err != nil || name != "punctual_"+migrations.Edition() {
			t.Fatalf("database %q: %v", name, err)
		}
		if strings.Contains(lines.String(), "before=postgres") != says {
			t.Errorf("the log says %q", &lines)
		}
		if _, err := migrations.Up(t.Context(), server.DSN(name)); err != nil {
			t.Errorf("the database cannot be migrated: %v", err)
		}
	}
}
