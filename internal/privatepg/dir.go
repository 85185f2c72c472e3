package privatepg

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const lockName = "owner.lock"

// InUseError says that another process owns the directory.
type InUseError struct {
	Dir string
	PID int // of the owner, or of the owner's postmaster; 0 if unknown
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("%s is in use by process %d: stop it, or choose another directory", e.Dir, e.PID)
}

// makeDir creates dir if it is missing, and returns its canonical path, which the kernel reports as the working
// directory of Postgres.
func makeDir(dir string) (canonical string, existed bool, err error) {
	if dir == "" {
		return "", false, errors.New("private Postgres: no directory given")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, fmt.Errorf("find the data directory: %w", err)
	}
	_, err = os.Stat(dir)
	existed = err == nil
	// The parents must stay enterable for the user that Postgres runs as.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // see above
		return "", existed, fmt.Errorf("create the data directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", existed, fmt.Errorf("create the data directory: %w", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", existed, fmt.Errorf("find the data directory: %w", err)
	}
	return dir, existed, nil
}

// checkDir refuses a directory with other contents, because Start would give it away and write to it. It also refuses a
// directory that belongs to another user.
func checkDir(dir string, existed bool) error {
	if !existed {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if uid, _ := owner(info); os.Geteuid() != 0 && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to %s: run as that user or as root, or choose another directory", dir, userName(uid))
	}
	if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s holds other files (such as %s): choose an empty directory or a new one", dir, entries[0].Name())
	}
	return nil
}

// lockDir makes this process the owner of dir. The kernel releases the lock when the process ends, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("own the data directory: %w", err)
	}
	taken, err := lockFile(f)
	if taken {
		text, _ := io.ReadAll(io.LimitReader(f, 32))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return nil, errors.Join(&InUseError{Dir: dir, PID: pid}, f.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("own the data directory: %w", err), f.Close())
	}
	return f, nil
}

// barrier returns the first directory on the way to path that the account may not enter, judging by mode bits alone;
// empty if there is none.
func (a account) barrier(path string) string {
	var found string
	for p := path; ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && info.IsDir() && !a.mayEnter(info) {
			found = fmt.Sprintf("%s (mode %04o)", p, info.Mode().Perm())
		}
		if p == filepath.Dir(p) {
			return found
		}
	}
}

func (a account) mayEnter(info os.FileInfo) bool {
	switch uid, gid := owner(info); {
	case uid == a.uid:
		return info.Mode()&0o100 != 0
	case gid == a.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}

// explain replaces "permission denied" from starting a program by the directory that is in the way. Start may not open
// up the parents of the directory itself.
func (s *Server) explain(err error) error {
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	for _, path := range []string{s.dir, s.bin.dir} {
		if at := s.user.barrier(path); at != "" {
			return fmt.Errorf("user %s, whom Postgres runs as, cannot enter %s on the way to %s: "+
				"choose a directory elsewhere, or open it with chmod o+x: %w",
				s.user.name, at, path, err)
		}
	}
	return err
}
