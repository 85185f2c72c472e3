package privatepg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// vacancyPatience is how long a Postgres that lost its owner may take to end.
const vacancyPatience = 15 * time.Second

// awaitVacancy waits until no Postgres uses the data directory any more: one
// whose owner was killed is still going down. Holding the owner's lock, this
// process need not fear one that comes up meanwhile.
func (s *Server) awaitVacancy(ctx context.Context) error {
	giveUp := time.After(vacancyPatience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pids := occupants(s.pgdata())
		if len(pids) == 0 {
			return s.removeReusedPID()
		}
		select {
		case <-ctx.Done():
			return errors.Join(&InUseError{Dir: s.dir, PID: pids[0]}, ctx.Err())
		case <-giveUp:
			return &InUseError{Dir: s.dir, PID: pids[0]}
		case <-tick.C:
		}
	}
}

// removeReusedPID removes a postmaster.pid, left by a crash, whose process id
// now belongs to some other program: Postgres would take that for a postmaster
// and refuse to start. Any other stale file Postgres deals with best by itself.
func (s *Server) removeReusedPID() error {
	pid := postmasterPID(s.pgdata())
	if pid == 0 || !alive(pid) {
		return nil
	}
	if err := os.Remove(filepath.Join(s.pgdata(), "postmaster.pid")); err != nil {
		return fmt.Errorf("remove a stale postmaster.pid: %w", err)
	}
	return nil
}

// postmasterPID is the process id in postmaster.pid, 0 if there is none.
func postmasterPID(pgdata string) int {
	text, err := os.ReadFile(filepath.Join(pgdata, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return max(pid, 0)
}

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
