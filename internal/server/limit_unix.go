//go:build unix

package server

import (
	"math"
	"syscall"
)

// mostDescriptors is how many file descriptors the system lets this process have. Go has raised the soft limit to the
// hard one when the process started.
func mostDescriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64
	}
	return limit.Cur
}
