package privatepg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// standbySlot is the replication slot of a Standby. The primary keeps the WAL that the standby has not received yet.
const standbySlot = "standby"

// Standby starts a streaming standby of this server: a copy of its data that follows it and answers read-only queries.
// It has the same roles and passwords. from is the DSN by which it reaches this server, for example through a proxy;
// empty: as DSN does. cfg is as for Start, and its Dir must be new. A server has one standby.
func (s *Server) Standby(ctx context.Context, cfg Config, from string) (*Server, error) {
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if from == "" {
		from = s.DSN("postgres")
	}
	standby, err := open(cfg)
	if err != nil {
		return nil, err
	}
	standby.bin = s.bin
	if err := standby.follow(ctx, s, from); err != nil {
		return nil, errors.Join(err, standby.close())
	}
	return standby, nil
}

// follow copies the primary's data and starts Postgres on it.
func (s *Server) follow(ctx context.Context, primary *Server, from string) error {
	if err := s.user.own(s.dir); err != nil {
		return err
	}
	if err := s.choosePassword(primary.password); err != nil {
		return err
	}
	err := s.runToEnd(ctx, filepath.Join(s.bin.dir, "pg_basebackup"), "--pgdata="+s.pgdata(), "--dbname="+from,
		"--write-recovery-conf", "--create-slot", "--slot="+standbySlot, "--wal-method=stream", "--checkpoint=fast")
	if err != nil {
		return fmt.Errorf("copy the primary: %w", err)
	}
	return s.launch(ctx)
}
