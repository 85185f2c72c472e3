//go:build !linux

package privatepg

import "syscall"

// tieToOwner reports that only Linux can do this: a watchdog must.
func tieToOwner(*syscall.SysProcAttr, syscall.Signal) bool { return false }
