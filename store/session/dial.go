package session

import (
	"net"
	"time"
)

// vanished is how long a connection waits for a database that is silent, even to TCP, before it gives up. A machine
// that lost its power or its network closes no connection, and by default TCP waits for a quarter of an hour: too long
// when a standby has taken over meanwhile.
const vanished = 15 * time.Second

// connecting bounds the attempt to reach one host. If the URL names several hosts, the next one is tried then.
const connecting = 5 * time.Second

// dialer makes connections that notice a vanished server, whatever is waiting for it.
func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         connecting,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: vanished / 3, Interval: vanished / 3, Count: 2},
		Control:         giveUp,
	}
}
