package session

import (
	"strings"
	"syscall"
)

const tcpUserTimeout = 0x12 // TCP_USER_TIMEOUT, which package syscall does not name

// giveUp bounds how long sent data may stay unacknowledged. Meanwhile TCP sends no keepalives.
func giveUp(network, _ string, conn syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	failed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(vanished.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
