//go:build unix

package privatepg

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file until the process ends. taken says that another process has the lock.
func lockFile(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK), err
}

// runAs makes a child run as a user.
func runAs(attr *syscall.SysProcAttr, uid, gid int) {
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// ownGroup gives a child a process group of its own.
func ownGroup(attr *syscall.SysProcAttr) { attr.Setpgid = true }

func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

func owner(info os.FileInfo) (uid, gid int) {
	st := info.Sys().(*syscall.Stat_t)
	return int(st.Uid), int(st.Gid)
}
