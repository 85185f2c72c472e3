package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"punctual/httpapi/client"
)

// The floor of the API is what any server in Go has to do for a read and a create: an exchange over HTTP, and a
// statement in Postgres.

// floorTables are what a create of the floor writes: three rows, as a create of a job writes a job, its definition and
// its schedule.
const floorTables = `
CREATE SCHEMA IF NOT EXISTS floor;
DROP TABLE IF EXISTS floor.jobs, floor.versions, floor.schedules;
CREATE TABLE floor.jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL);
CREATE TABLE floor.versions (job_id bigint PRIMARY KEY, definition jsonb NOT NULL);
CREATE TABLE floor.schedules (job_id bigint PRIMARY KEY, next_run_at timestamptz NOT NULL)`

const floorCreate = `
WITH job AS (INSERT INTO floor.jobs (created_at) VALUES (now()) RETURNING id),
version AS (INSERT INTO floor.versions SELECT id, $1::jsonb FROM job)
INSERT INTO floor.schedules SELECT id, now() + interval '1 day' FROM job RETURNING job_id`

// floorConns is how many connections to the database the API of a replica has by default: see --max-conns.
const floorConns = 6

// Floor answers reads with SELECT 1, and creates with an INSERT of three rows, until ctx ends. It writes its address to
// the standard output.
func Floor(ctx context.Context, dsn string, conns int) error {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.MaxConns = int32(conns)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	answer := func(w http.ResponseWriter, r *http.Request, status int, sql string, args ...any) {
		var n int64
		if err := pool.QueryRow(r.Context(), sql, args...).Scan(&n); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"n":%d}`, n)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /read", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, http.StatusOK, `SELECT 1::bigint`)
	})
	mux.HandleFunc("POST /create", func(w http.ResponseWriter, r *http.Request) {
		definition, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, r, http.StatusCreated, floorCreate, string(definition))
	})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// floor starts the floor of the API.
func (l *lab) floor(ctx context.Context, transport http.RoundTripper) *client.Client {
	l.exec(ctx, floorTables)
	p := l.launch(floorHelper, "--dsn="+l.db.dsn, fmt.Sprint("--conns=", floorConns))
	l.must(await(ctx, "the floor", 5*time.Millisecond, func() (bool, error) {
		return strings.HasSuffix(p.Output(), "\n"), alive("the floor", p)
	}))
	return client.Through(strings.TrimSpace(p.Output()), transport)
}
