package process

import "syscall"

// tied is a process group of its own, killed with the thread that started it.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
