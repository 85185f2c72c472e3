package prove

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuOf is the processor time that a process and all of its children, living and reaped, have used; zero
// where there is no /proc.
func cpuOf(pid int) time.Duration {
	own := cpuStat(pid)
	total := own.used + own.reaped
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s := cpuStat(child); s.parent == pid {
			total += s.used + s.reaped
		}
	}
	return total
}

type procStat struct {
	parent       int
	used, reaped time.Duration
}

// cpuStat reads /proc/pid/stat; proc_pid_stat(5). Its unit is a hundredth of a second everywhere.
func cpuStat(pid int) (s procStat) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return s
	}
	number := func(field int) int { n, _ := strconv.Atoi(fields[field-3]); return n }
	const tick = 10 * time.Millisecond
	s.parent = number(4)
	s.used = time.Duration(number(14)+number(15)) * tick
	s.reaped = time.Duration(number(16)+number(17)) * tick
	return s
}
