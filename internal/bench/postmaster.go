package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/internal/process"
)

// describe reads the version and the settings of Postgres that figures depend on.
func (s *scratch) describe(ctx context.Context) (p postgres, err error) {
	p.Private = s.private != nil
	if err := s.guard.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&p.Version); err != nil {
		return p, err
	}
	rows, err := s.guard.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1)`, relevant)
	if err != nil {
		return p, err
	}
	p.Settings = map[string]string{}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { p.Settings[name] = value; return nil })
	return p, err
}

// findPostmaster finds the parent process of all of Postgres, if it runs on this machine.
func (s *scratch) findPostmaster(ctx context.Context) error {
	if s.private != nil {
		s.postmaster = s.private.PID()
		return nil
	}
	var backend int
	var started time.Time
	const itself = `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`
	if err := s.guard.QueryRow(ctx, itself).Scan(&backend, &started); err != nil {
		return err
	}
	// If Postgres runs on another machine or in a container, the same process id may belong to another process here.
	if parent, began, ok := procParent(backend); ok && began.Sub(started).Abs() < 3*time.Second {
		s.postmaster = parent
		return nil
	}
	s.noCPU = fmt.Sprintf("its process %d is not on this machine, or there is no /proc", backend)
	return nil
}

// procParent returns when a Postgres process started, and its parent.
func procParent(pid int) (parent int, started time.Time, ok bool) {
	stat, ok := process.ReadStat(pid)
	uptime, err := os.ReadFile("/proc/uptime")
	if !ok || err != nil || !strings.HasPrefix(stat.Name, "postgres") {
		return 0, started, false
	}
	seconds, _, _ := strings.Cut(string(uptime), " ")
	up, err := strconv.ParseFloat(seconds, 64)
	age := time.Duration(up*float64(time.Second)) - stat.Started
	return stat.Parent, time.Now().Add(-age), err == nil
}
