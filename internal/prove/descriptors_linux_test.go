package prove

import (
	"syscall"
	"testing"
	"unsafe"
)

// limitDescriptors sets how many descriptors a process may have open, and returns how many it might have before.
func limitDescriptors(t testing.TB, pid int, most uint64) (before uint64) {
	t.Helper()
	var old syscall.Rlimit
	set := func(next, old *syscall.Rlimit) {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE,
			uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(old)), 0, 0)
		if errno != 0 {
			t.Errorf("limiting the descriptors of process %d to %d: %v", pid, most, errno)
		}
	}
	set(nil, &old)
	set(&syscall.Rlimit{Cur: min(most, old.Max), Max: old.Max}, nil)
	return old.Cur
}
