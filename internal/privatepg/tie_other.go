//go:build !linux

package privatepg

import "syscall"

// tieToOwner returns false: only Linux can do this, and elsewhere a watchdog must.
func tieToOwner(*syscall.SysProcAttr, syscall.Signal) bool { return false }
