package process

import "syscall"

// tied makes a child lead a process group of its own, and die with the thread that started it.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
