package privatepg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// initialise creates the database cluster unless it exists. initdb works next to the final place, so that a half-made
// cluster is never taken for a whole one.
func (s *Server) initialise(ctx context.Context) error {
	if err := s.readPassword(); err != nil {
		return err
	}
	if v, err := dataVersion(s.pgdata()); err != nil || v != 0 {
		return err
	}
	half := s.pgdata() + ".new"
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("create the database cluster: %w", err)
	}
	args := []string{
		"--pgdata=" + half, "--username=" + Superuser, "--pwfile=" + s.passwordFile(),
		"--auth-local=trust", "--auth-host=scram-sha-256", // only the server's user can enter the socket's directory
		"--encoding=UTF8", "--locale=C", "--data-checksums",
	}
	if s.cfg.Fast {
		args = append(args, "--no-sync")
	}
	if err := s.runToEnd(ctx, filepath.Join(s.bin.dir, "initdb"), args...); err != nil {
		return fmt.Errorf("create the database cluster: %w", err)
	}
	if err := os.Rename(half, s.pgdata()); err != nil {
		return fmt.Errorf("create the database cluster: %w", err)
	}
	return nil
}

func (s *Server) passwordFile() string { return filepath.Join(s.dir, "password") }

// readPassword reads the superuser's password. The first time it chooses one.
func (s *Server) readPassword() error {
	text, err := os.ReadFile(s.passwordFile())
	if err == nil && len(bytes.TrimSpace(text)) > 0 {
		s.password = string(bytes.TrimSpace(text))
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the password: %w", err)
	}
	return s.choosePassword(rand.Text())
}

// choosePassword keeps a password for the superuser.
func (s *Server) choosePassword(password string) error {
	s.password = password
	if err := os.WriteFile(s.passwordFile(), []byte(s.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	return s.user.own(s.passwordFile())
}

// runToEnd runs a program as the server's user. Its error contains the program's output.
func (s *Server) runToEnd(ctx context.Context, path string, args ...string) error {
	var out bytes.Buffer
	cmd := s.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := startProcess(cmd, syscall.SIGKILL, "")
	if err != nil {
		return s.explain(err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(ctx.Err(), p.end(syscall.SIGKILL, time.Minute))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(path), p.err, strings.TrimSpace(out.String()))
	}
	return p.watch.dismiss()
}

// Command prepares a program to run as the server's user, in the server's directory. The program gets only the
// environment variables that it needs to be found and to load: none that would configure Postgres, and no secrets of
// ours.
func (s *Server) Command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if s.user.demoted {
		runAs(cmd.SysProcAttr, s.user.uid, s.user.gid)
	}
	cmd.Env = []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, s.cfg.Env...)
	return cmd
}
