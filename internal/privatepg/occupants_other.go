//go:build !linux

package privatepg

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// occupants lists the postmaster that uses pgdata, as far as its postmaster.pid tells.
func occupants(pgdata string) []int {
	pid := postmasterPID(pgdata)
	if pid == 0 || !alive(pid) {
		return nil
	}
	name, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || !strings.HasPrefix(filepath.Base(strings.TrimSpace(string(name))), "postgres") {
		return nil
	}
	return []int{pid}
}
