package privatepg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is the length of the longest directory whose socket name (".s.PGSQL.65535") still fits into the 104
// bytes that the strictest system allows.
const maxSocketPath = 104 - 1 - len("/.s.PGSQL.65535")

// makeSocketDir returns a directory for the socket that only the server's user can enter. It is run in the server's
// directory. If that path is too long, or would be misread as a list, it is a short temporary directory that run links
// to.
func (s *Server) makeSocketDir() (string, error) {
	run := filepath.Join(s.dir, "run")
	if target, err := os.Readlink(run); err == nil {
		if s.private(target) {
			return target, nil // left over from an owner that was killed
		}
		if err := os.Remove(run); err != nil {
			return "", fmt.Errorf("make a directory for the socket: %w", err)
		}
	}
	if len(run) > maxSocketPath || strings.ContainsAny(run, `,"'\`) {
		short, err := os.MkdirTemp("/tmp", "punctual-")
		if err != nil {
			return "", fmt.Errorf("make a directory for the socket: %w", err)
		}
		if err := os.Symlink(short, run); err != nil {
			return "", errors.Join(fmt.Errorf("make a directory for the socket: %w", err), os.Remove(short))
		}
		return short, s.user.own(short)
	}
	if err := os.Mkdir(run, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make a directory for the socket: %w", err)
	}
	if err := os.Chmod(run, 0o700); err != nil { //nolint:gosec // a directory
		return "", fmt.Errorf("make a directory for the socket: %w", err)
	}
	return run, s.user.own(run)
}

// private reports whether dir belongs to the server's user and no other user may enter it.
func (s *Server) private(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		return false
	}
	uid, _ := owner(info)
	return uid == s.user.uid
}

func (s *Server) removeSocketDir() error {
	run := filepath.Join(s.dir, "run")
	target, err := os.Readlink(run)
	if err != nil {
		return nil //nolint:nilerr // not a link: it stays, for the next start
	}
	if s.private(target) {
		err = os.RemoveAll(target)
	}
	return errors.Join(err, os.Remove(run))
}

// openLog starts a new log and keeps the previous one.
func (s *Server) openLog() (*os.File, error) {
	if err := os.Rename(s.Log(), s.Log()+".old"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	f, err := os.OpenFile(s.Log(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return f, s.user.own(s.Log())
}

// tail returns the last lines of a log, at most 2 kB, for an error message.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 2048 {
		_, _ = f.Seek(-2048, io.SeekEnd) // shorter than 2 kB: read it from the start
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// MakeDir makes a new private directory below the server's, for a program that runs as the server's user.
func (s *Server) MakeDir(pattern string) (string, error) {
	dir, err := os.MkdirTemp(s.dir, pattern)
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return dir, s.user.own(dir)
}
