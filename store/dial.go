package store

import (
	"net"
	"time"
)

// vanished is after how long a connection to a database that says nothing, not even to TCP, is given up.
// A machine that lost its power or its network closes no connection, and by default TCP hopes for a
// quarter of an hour: too long when a standby has taken over meanwhile.
const vanished = 15 * time.Second

// connecting bounds the attempt to reach one host: with several in the URL the next one is tried then.
const connecting = 5 * time.Second

// dialer connects so that a vanished server is noticed, whatever waits for it.
func dialer() *net.Dialer {
	return &net.Dialer{
		Timeout:         connecting,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: vanished / 3, Interval: vanished / 3, Count: 2},
		Control:         giveUp,
	}
}
