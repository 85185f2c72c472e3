package privatepg

import (
	"errors"
	"os"
	"syscall"
)

// On Windows there are only client commands, and those start no Postgres.

func lockFile(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }

func runAs(*syscall.SysProcAttr, int, int) {}

func ownGroup(*syscall.SysProcAttr) {}

func alive(int) bool { return false }

func owner(os.FileInfo) (uid, gid int) { return 0, 0 }
