//go:build !linux

package process

import "syscall"

// tied makes a child lead a process group of its own. Only Linux can tie its life to its parent's. Elsewhere, a test
// that is killed leaves its replicas running.
func tied(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
