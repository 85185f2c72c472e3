package privatepg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// vacancyPatience is how long a Postgres that lost its owner may take to end.
const vacancyPatience = 15 * time.Second

// awaitVacancy waits until no Postgres uses the data directory: after its owner was killed, Postgres still takes a
// while to end. This process holds the owner's lock, so no new Postgres can start there meanwhile.
func (s *Server) awaitVacancy(ctx context.Context) error {
	giveUp := time.After(vacancyPatience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		pid := occupant(s.pgdata())
		if pid == 0 {
			return s.removeReusedPID()
		}
		select {
		case <-ctx.Done():
			return errors.Join(&InUseError{Dir: s.dir, PID: pid}, ctx.Err())
		case <-giveUp:
			return &InUseError{Dir: s.dir, PID: pid}
		case <-tick.C:
		}
	}
}

// removeReusedPID removes a postmaster.pid that a crash left behind, if its process id now belongs to another program.
// Postgres would take that program for a postmaster and refuse to start. Postgres handles any other stale file best by
// itself.
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

// postmasterPID returns the process id in postmaster.pid; 0 if there is no such file.
func postmasterPID(pgdata string) int {
	text, err := os.ReadFile(filepath.Join(pgdata, "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return max(pid, 0)
}
