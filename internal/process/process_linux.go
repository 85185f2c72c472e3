package process

import "syscall"

// tied makes a child lead a process group of its own, and get a signal when the thread that started it ends.
func tied(last syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: last}
}
