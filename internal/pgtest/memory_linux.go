package pgtest

import (
	"os"
	"syscall"
)

// sharedMemory is a file system in memory, where there is one.
const sharedMemory = "/dev/shm"

// plenty is room for the databases of several test processes at once, in bytes: the largest have needed less than 2 GiB.
const plenty = 8 << 30

// inMemory returns a directory in memory for data that need not outlive the test, empty if there is none with plenty of
// room or $TMPDIR names another place. A database is created there in less than half the time, as that makes hundreds of
// files.
func inMemory() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(sharedMemory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < plenty {
		return ""
	}
	return sharedMemory
}
