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
	own, ok := ReadStat(pid)
	if !ok {
		return 0, false
	}
	used = own.used + own.reaped
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, path := range stats {
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if s, ok := ReadStat(child); ok && s.Parent == pid {
			used += s.used + s.reaped
		}
	}
	return used, true
}

// Stat is what proc_pid_stat(5) says of a process.
type Stat struct {
	Name         string // as Postgres sets it, cut off
	Parent       int
	Started      time.Duration // since this machine has booted
	used, reaped time.Duration // processor time of its own, and of its children that have ended
}

// ReadStat reads /proc/pid/stat. The unit is a hundredth of a second on every machine.
func ReadStat(pid int) (s Stat, ok bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return s, false
	}
	name, rest, _ := strings.Cut(string(raw), ") ") // the name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return s, false
	}
	number := func(field int) int { n, _ := strconv.Atoi(fields[field-3]); return n }
	const tick = 10 * time.Millisecond
	_, s.Name, _ = strings.Cut(name, "(")
	s.Parent = number(4)
	s.Started = time.Duration(number(22)) * tick
	s.used = time.Duration(number(14)+number(15)) * tick
	s.reaped = time.Duration(number(16)+number(17)) * tick
	return s, true
}

// Resident returns how much memory a process occupies now, and the most that it ever did, in bytes. ok is false where
// it cannot be read: it needs /proc.
func Resident(pid int) (now, most int64, ok bool) {
	status := filepath.Join("/proc", strconv.Itoa(pid), "status")
	now, most = FieldBytes(status, "VmRSS"), FieldBytes(status, "VmHWM")
	return now, most, now > 0
}

// FieldBytes returns the value of a Field in kB, in bytes; 0 if there is none.
func FieldBytes(path, name string) int64 {
	kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(Field(path, name), " kB"), 10, 64)
	return kilobytes << 10
}

// Field returns the first value of a name in a file of lines "name: value"; empty if there is none.
func Field(path, name string) string {
	raw, _ := os.ReadFile(path)
	for line := range strings.Lines(string(raw)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
