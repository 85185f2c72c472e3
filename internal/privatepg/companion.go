package privatepg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Companion is another program that runs next to a Server, such as a connection pooler. It runs as the same user, and
// never outlives the owner.
type Companion struct {
	p   *process
	log string
}

// Companion starts the program at path. Its output goes to a log in the server's directory.
func (s *Server) Companion(path string, args ...string) (*Companion, error) {
	log, err := os.CreateTemp(s.dir, filepath.Base(path)+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	defer log.Close()
	cmd := s.command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd, syscall.SIGKILL, "")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, s.explain(err))
	}
	return &Companion{p: p, log: log.Name()}, nil
}

// MakeDir makes a new private directory below the server's, for a companion.
func (s *Server) MakeDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp(s.dir, pattern)
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return dir, s.user.own(dir)
}

// AwaitReady waits until the program accepts connections at dsn.
func (c *Companion) AwaitReady(ctx context.Context, dsn string) error {
	return c.p.awaitReady(ctx, filepath.Base(c.p.cmd.Path), dsn, c.log)
}

// Stop sends the program SIGTERM, and kills it if it does not end.
func (c *Companion) Stop() error {
	err := c.p.end(syscall.SIGTERM, 10*time.Second)
	if err != nil {
		err = errors.Join(err, c.p.end(syscall.SIGKILL, time.Minute))
	}
	return err
}
