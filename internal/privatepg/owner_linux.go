package privatepg

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// tieToOwner asks the kernel to signal the child when the thread that forks it ends. Go sets this after dropping
// privileges, which would clear it.
func tieToOwner(attr *syscall.SysProcAttr, signal syscall.Signal) bool {
	attr.Pdeathsig = signal
	return true
}

// occupant returns a process of Postgres that uses pgdata; 0 if there is none. The postmaster and its children all have
// pgdata as their working directory. If the postmaster is among them, it is returned.
func occupant(pgdata string) (pid int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd") // fails only for a bad pattern
	postmaster := postmasterPID(pgdata)
	for _, link := range links {
		// An unreadable link belongs to another user's process, or to one that just ended: not ours.
		if cwd, err := os.Readlink(link); err != nil || cwd != pgdata {
			continue
		}
		exe, err := os.Readlink(filepath.Join(filepath.Dir(link), "exe"))
		if err != nil || filepath.Base(exe) != "postgres" {
			continue // such as a shell whose working directory this is
		}
		pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if pid == postmaster {
			return pid
		}
	}
	return pid
}
