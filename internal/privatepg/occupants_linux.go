package privatepg

import (
	"os"
	"path/filepath"
	"strconv"
)

// occupants lists the processes of Postgres that use pgdata. The postmaster and its children all have pgdata as their
// working directory. The postmaster comes first if it is among them.
func occupants(pgdata string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // fails only for a bad pattern
	postmaster := postmasterPID(pgdata)
	var pids []int
	for _, link := range links {
		// An unreadable link belongs to another user's process, or to one that just ended: not ours.
		if cwd, err := os.Readlink(link); err != nil || cwd != pgdata {
			continue
		}
		exe, err := os.Readlink(filepath.Join(filepath.Dir(link), "exe"))
		if err != nil || filepath.Base(exe) != "postgres" {
			continue // such as a shell whose working directory this is
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if pid == postmaster {
			pids = append([]int{pid}, pids...)
		} else {
			pids = append(pids, pid)
		}
	}
	return pids
}
