//go:build unix

package archive

import (
	"os/exec"
	"syscall"
)

// killTogether makes what the command has started be killed with it.
func killTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
