package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that a process and all of its children, living and reaped, have used. ok is false
// where it cannot be read: it needs /proc.
func CPU(pid int) (used time.Duration, ok bool) {
	own, ok := cpuStat(pid)
	if !ok {
		return 0, false
	}
	used = own.used + own.reaped
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, ok := cpuStat(child); ok && s.parent == pid {
			used += s.used + s.reaped
		}
	}
	return used, true
}

type procStat struct {
	parent       int
	used, reaped time.Duration
}

// cpuStat reads /proc/pid/stat; see proc_pid_stat(5). The unit is a hundredth of a second on every machine.
func cpuStat(pid int) (s procStat, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // the process name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return s, false
	}
	number := func(field int) int { n, _ := strconv.Atoi(fields[field-3]); return n }
	const tick = 10 * time.Millisecond
	s.parent = number(4)
	s.used = time.Duration(number(14)+number(15)) * tick
	s.reaped = time.Duration(number(16)+number(17)) * tick
	return s, true
}

// Resident returns how much memory a process occupies now, and the most that it ever did, in bytes. ok is false where
// it cannot be read: it needs /proc.
func Resident(pid int) (now, most int64, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			now = kilobytes << 10
		case name == "VmHWM":
			most = kilobytes << 10
		}
	}
	return now, most, now > 0
}
