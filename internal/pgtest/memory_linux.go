package pgtest

import (
	"os"
	"syscall"
)

// sharedMemory is a file system in memory, on machines that have one.
const sharedMemory = "/dev/shm"

// plenty is room for the databases of several test processes at once, in bytes. The largest process has needed less
// than 2 GiB.
const plenty = 8 << 30

// inMemory returns a directory in memory for data that need not outlive the test. It returns an empty string if there
// is less room than plenty, or if $TMPDIR names another place. In memory, creating a database takes less than half the
// time, because Postgres writes hundreds of files for it.
func inMemory() string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(sharedMemory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < plenty {
		return ""
	}
	return sharedMemory
}
