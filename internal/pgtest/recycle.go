package pgtest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"punctual/internal/privatepg"
)

// To clone a database and to drop it costs more than most tests do with it. So tests hand their databases on:
// recycling empties the tables that were written to, and drops those of days that the test made. A database is not
// handed on if its test failed, or if something is left that a clone does not have: an object, a setting, a
// connection, statistics of ANALYZE, a large table. Tables that were emptied still have some pages, with dead rows. So
// tests of plans and sizes begin with a Clone. The connection that recycles a database is handed on with it, because a
// new one would read the catalogs anew.

//go:embed recycle.sql
var recycleSQL string

// found is what recycle.sql finds in a database.
type found struct {
	Rows      json.RawMessage // by table
	Sequences json.RawMessage // by name
	Catalogs  json.RawMessage // checksums by name
	Last      int64           // oid of a table or index
	Else      []string        // what is there besides
}

var idle struct {
	sync.Mutex
	databases []handed
	template  string // what recycle.sql finds in the template
}

// handed is a database that a test has handed on, or may hand on.
type handed struct {
	name string
	conn *pgx.Conn // a superuser's, to recycle it; nil: there is none yet
}

// remember remembers what is in the template.
func remember(t testing.TB, server *privatepg.Server) {
	t.Helper()
	var err error
	conn, err := pgx.Connect(t.Context(), server.DSN(migrated))
	if err == nil {
		defer func() { _ = conn.Close(t.Context()) }()
		idle.template, err = find(t.Context(), conn, found{})
	}
	if err != nil {
		t.Fatalf("look into the migrated database: %v", err)
	}
}

// handedOn returns a database that a test has handed on; without a name if there is none.
func handedOn() (d handed) {
	idle.Lock()
	defer idle.Unlock()
	if n := len(idle.databases); n > 0 {
		d, idle.databases = idle.databases[n-1], idle.databases[:n-1]
	}
	return d
}

// handsOn hands a database on when its test has passed.
func handsOn(t testing.TB, server *privatepg.Server, d handed) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context()) // it has ended
		var err error
		switch {
		case t.Failed():
			t.Logf("the database is %s", as(t, server, d.name))
			return
		case d.conn == nil:
			d.conn, err = pgx.Connect(ctx, server.DSN(d.name))
		}
		if err == nil {
			err = recycle(ctx, d.conn)
		}
		if err == nil {
			idle.Lock()
			defer idle.Unlock()
			idle.databases = append(idle.databases, d)
			return
		}
		if d.conn != nil {
			_ = d.conn.Close(ctx)
		}
		drop(t, server, d.name)
	})
}

// errUnlike says that a database is unlike a clone of the template even when it is emptied.
var errUnlike = errors.New("the database is not like a clone")

// recycle makes a database like a clone of the template, or fails.
func recycle(ctx context.Context, conn *pgx.Conn) error {
	var template found
	if err := json.Unmarshal([]byte(idle.template), &template); err != nil {
		return err
	}
	is, err := find(ctx, conn, template)
	if err == nil && is != idle.template {
		err = errUnlike
	}
	return err
}

// find makes the rows and sequences of a database like those of a template, and returns what it finds then. Without a
// template it changes nothing.
func find(ctx context.Context, conn *pgx.Conn, template found) (string, error) {
	values := strings.NewReplacer("{rows}", string(template.Rows), "{sequences}", string(template.Sequences),
		"{catalogs}", string(template.Catalogs), "{last}", strconv.FormatInt(template.Last, 10))
	results, err := conn.PgConn().Exec(ctx, values.Replace(recycleSQL)).ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[len(results)-1].Rows[0][0]), nil
}
