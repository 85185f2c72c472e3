//go:build !linux

package process

import "syscall"

// tied is a process group of its own. Only Linux can tie its life to another's: elsewhere a test that is
// killed leaves its replicas behind.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
