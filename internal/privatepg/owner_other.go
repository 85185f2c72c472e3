//go:build !linux

package privatepg

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// tieToOwner returns false: only Linux can do this, and elsewhere a watchdog must.
func tieToOwner(*syscall.SysProcAttr, syscall.Signal) bool { return false }

// occupant returns the postmaster that uses pgdata, as far as its postmaster.pid tells; 0 if there is none.
func occupant(pgdata string) int {
	pid := postmasterPID(pgdata)
	if pid == 0 || !alive(pid) {
		return 0
	}
	name, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || !strings.HasPrefix(filepath.Base(strings.TrimSpace(string(name))), "postgres") {
		return 0
	}
	return pid
}
