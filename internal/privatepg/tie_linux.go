package privatepg

import "syscall"

// tieToOwner asks the kernel to signal the child when the thread that forks it ends. Go sets this after dropping
// privileges, which would clear it.
func tieToOwner(attr *syscall.SysProcAttr, signal syscall.Signal) bool {
	attr.Pdeathsig = signal
	return true
}
