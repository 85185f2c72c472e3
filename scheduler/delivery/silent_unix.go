//go:build unix

package delivery

import (
	"errors"
	"syscall"
)

// silent reports whether a socket is open and has nothing to be read.
func silent(socket syscall.RawConn) bool {
	var failure error
	err := socket.Control(func(fd uintptr) {
		var next [1]byte
		_, _, failure = syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && errors.Is(failure, syscall.EAGAIN)
}
