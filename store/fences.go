package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A standby that is promoted begins a new timeline. After an asynchronous failover it may not know of the last
// fencing tokens that were given; so before anything is claimed on a new timeline the sequence is raised, by far
// more than can have been given inside any lag, and still leaving room for nine thousand million failovers.
const (
	readTimeline = `
SELECT CASE WHEN pg_is_in_recovery() THEN timeline ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END, timeline FROM punctual.deployment`
	raiseFences = `
WITH was AS (SELECT singleton FROM punctual.deployment WHERE timeline <> $1 FOR NO KEY UPDATE SKIP LOCKED),
noted AS (UPDATE punctual.deployment d SET timeline = $1 FROM was WHERE d.singleton = was.singleton)
SELECT setval('punctual.fences', nextval('punctual.fences') + 1000000000) WHERE $2 <> ''`
)

// Whoever finds an unknown timeline raises it, also where another does so at the moment, or somebody has locked the row in
// which it is noted: raised too often it lasts as long.

// guardFences does so on every connection, from Register on: after a failover all connections are new ones, but
// for those of a pooler, so each heartbeat looks as well. A Postgres that does not tell its timeline, as some
// hosted ones, is not guarded.
func (s *Store) guardFences(ctx context.Context, q querier) error {
	var here, known string
	err := q.QueryRow(ctx, readTimeline).Scan(&here, &known)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "0A000" || pg.Code == "42501" || pg.Code == "42883") {
		s.guarding.Store(false)
		s.options.Log.Warn("this Postgres does not tell its timeline: after an asynchronous failover fencing tokens may be given again", "error", err)
		return nil
	}
	if err == nil && here != known {
		err = query(ctx, q, raiseFences, here, known)
	}
	if err != nil {
		return fmt.Errorf("guarding the fencing tokens: %w", err)
	}
	return nil
}

// connected readies a new connection.
func (s *Store) connected(ctx context.Context, conn *pgx.Conn) error {
	if err := registerTypes(ctx, conn); err != nil {
		return err
	}
	if err := s.endpoints.ask(ctx, conn); err != nil {
		return err
	}
	if err := markDirect(ctx, conn); err != nil {
		return err
	}
	if _, direct := conn.PgConn().CustomData()[keepsNames]; direct {
		if _, err := conn.Exec(ctx, uncompiledSession); err != nil {
			return fmt.Errorf("keeping plans from being compiled: %w", err)
		}
	}
	if !s.guarding.Load() {
		return nil
	}
	return s.guardFences(ctx, conn)
}
