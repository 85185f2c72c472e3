package privatepg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	socketPort = 5432 // the port in the socket's name when there is no TCP port

	fastPatience  = 30 * time.Second // for a fast shutdown with its checkpoint
	crashPatience = 15 * time.Second // Postgres kills its own children after 5 s
	portAttempts  = 3                // another process may take a free port before Postgres does
)

// endedError says that Postgres ended instead of accepting connections.
type endedError struct{ error }

// launch starts Postgres in the initialised directory.
func (s *Server) launch(ctx context.Context) error {
	socket, err := s.makeSocketDir()
	if err != nil {
		return err
	}
	attempts := 1
	if s.cfg.TCP && s.port == 0 { // a Restart keeps the port
		attempts = portAttempts
	}
	for {
		port, err := s.choosePort()
		if err != nil {
			return err
		}
		p, err := s.launchOn(ctx, socket, port)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.socket, s.port, s.process = socket, port, p
			return nil
		}
		if attempts--; attempts == 0 || !errors.As(err, &endedError{}) {
			return err
		}
	}
}

func (s *Server) choosePort() (int, error) {
	switch {
	case s.port != 0:
		return s.port, nil
	case !s.cfg.TCP:
		return socketPort, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// launchOn starts postgres and waits until it accepts connections.
func (s *Server) launchOn(ctx context.Context, socket string, port int) (*process, error) {
	log, err := s.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := s.Command(filepath.Join(s.bin.dir, "postgres"), s.arguments(socket, port)...)
	cmd.Stdout, cmd.Stderr = log, log
	var cleanup string
	if s.cfg.Ephemeral {
		cleanup = s.dir
	}
	// SIGQUIT is an immediate shutdown, which is quick. Unlike SIGINT, a Go program never passes it on as ignored, not
	// even below `sh -c '… &'`.
	p, err := startProcess(cmd, syscall.SIGQUIT, cleanup)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", s.explain(err))
	}
	if err := p.awaitReady(ctx, socketDSN(socket, port, "postgres"), s.Log()); err != nil {
		return nil, errors.Join(err, p.end(syscall.SIGQUIT, crashPatience))
	}
	return p, nil
}

// awaitReady tries to connect until it succeeds. Postgres writes to log.
func (p *process) awaitReady(ctx context.Context, dsn, log string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgconn.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.done:
			return endedError{fmt.Errorf("postgres ended at once (%s); the end of %s:\n%s", p.cmd.ProcessState, log, tail(log))}
		case <-ctx.Done():
			return fmt.Errorf("postgres does not accept connections; the end of %s:\n%s: %w", log, tail(log), err)
		case <-tick.C:
		}
	}
}

// Stop shuts Postgres down, disconnects its clients, and releases the directory. If Postgres had to be killed, Stop
// returns an error. Stopping again does nothing.
func (s *Server) Stop() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	return errors.Join(s.halt(), s.close())
}

// Crash ends Postgres as a power failure would, except that writes which the operating system still holds survive.
// Restart brings Postgres up again.
func (s *Server) Crash() error {
	s.life.Lock()
	defer s.life.Unlock()
	return s.current().end(syscall.SIGQUIT, crashPatience)
}

// Restart shuts Postgres down, unless it is down, and starts it again on the same socket and port. ctx bounds the start
// as for Start.
func (s *Server) Restart(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return errors.New("restart postgres: it was stopped for good")
	}
	ctx, cancel := withPatience(ctx)
	defer cancel()
	if err := s.halt(); err != nil {
		return err
	}
	if err := s.awaitVacancy(ctx); err != nil {
		return err
	}
	return s.launch(ctx)
}

// halt ends Postgres: first by a fast shutdown, then by force.
func (s *Server) halt() error {
	p := s.current()
	err := p.end(syscall.SIGINT, fastPatience)
	if err != nil {
		err = errors.Join(err, p.end(syscall.SIGQUIT, crashPatience))
	}
	return err
}

// close releases what open took.
func (s *Server) close() error {
	s.closed = true
	err := errors.Join(s.removeSocketDir(), s.lock.Close())
	if s.cfg.Ephemeral {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
