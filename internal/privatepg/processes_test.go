package privatepg

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// processes maps running processes to their parents. It leaves out those that only wait to be reaped.
func processes(t *testing.T) map[int]int {
	t.Helper()
	parents := map[int]int{}
	for line := range strings.Lines(listing(t)) {
		var pid, parent int
		var state string
		if _, err := fmt.Sscan(line, &pid, &parent, &state); err == nil && state[0] != 'Z' {
			parents[pid] = parent
		}
	}
	if len(parents) == 0 {
		t.Fatal("no processes found")
	}
	return parents
}

// listing returns a line "pid parent state" for each process. It uses /proc where there is one, because some machines
// have no ps.
func listing(t *testing.T) string {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // fails only for a bad pattern
	if len(files) == 0 {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
		must(t, err)
		return string(out)
	}
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The format is "pid (name) state parent …", and the name may contain anything.
		pid, _, _ := strings.Cut(string(text), " ")
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		fmt.Fprintln(&b, pid, fields[1], fields[0])
	}
	return b.String()
}

// descendants lists the processes below pid.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	below := map[int][]int{}
	for child, parent := range processes(t) {
		below[parent] = append(below[parent], child)
	}
	var all []int
	for todo := below[pid]; len(todo) > 0; todo = todo[1:] {
		all = append(all, todo[0])
		todo = append(todo, below[todo[0]]...)
	}
	return all
}
