package delivery

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// A scriptedConn returns the data and error of its fields from Read, and counts the bytes written.
type scriptedConn struct {
	net.Conn
	data    []byte
	err     error
	written int
	before  func() // called by Read before it returns
}

func (s *scriptedConn) Write(p []byte) (int, error) { s.written += len(p); return len(p), nil }

func (s *scriptedConn) Read(p []byte) (int, error) {
	if s.before != nil {
		s.before()
	}
	return copy(p, s.data), s.err
}

func TestConnStates(t *testing.T) {
	const (
		begin = iota
		write
		data // Read returns data
		eof  // Read returns io.EOF
	)
	tests := []struct {
		name  string
		steps []int
		state uint32
		sent  bool
	}{
		{"an exchange", []int{begin, write, data}, answered, true},
		{"an exchange in parts", []int{begin, write, data, write, data}, answered, true},
		{"the next exchange", []int{begin, write, data, begin}, waiting, false},
		{"closed before the first request", []int{eof, begin}, ended, false},
		{"closed while handed out", []int{begin, eof, write}, ended, false},
		{"closed while idle", []int{begin, write, data, eof, begin, write}, ended, false},
		{"closed within or after the answer", []int{begin, write, data, eof}, over, true},
		{"not written to after its end", []int{begin, write, data, eof, write}, over, true},
		{"closed unanswered", []int{begin, write, eof}, broken, true},
		{"reused and closed unanswered", []int{begin, write, data, begin, write, eof}, broken, true},
		{"reused and read on after that", []int{begin, write, data, begin, write, eof, eof}, broken, true},
		{"spoke unasked", []int{begin, data, write}, ended, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inner := &scriptedConn{}
			c := &conn{Conn: inner}
			buf := make([]byte, 10)
			for _, step := range test.steps {
				switch step {
				case begin:
					c.begin()
				case write:
					before := inner.written
					_, err := c.Write([]byte("x"))
					if refused := inner.written == before; refused != (err != nil) {
						t.Errorf("refused %t, error %v", refused, err)
					}
				case data:
					inner.data, inner.err = []byte("data"), nil
					_, _ = c.Read(buf)
				case eof:
					inner.data, inner.err = nil, io.EOF
					first := c.state.Load() == asked
					if n, _ := c.Read(buf); (n == 1) != first {
						t.Errorf("read %d bytes; the stand-in must come once, for an unanswered request", n)
					}
				}
			}
			if got := c.state.Load(); got != test.state || c.sent() != test.sent {
				t.Errorf("state %d, sent %t; want %d, %t", got, c.sent(), test.state, test.sent)
			}
		})
	}
}

// A read error at the very moment when the request is written must not look like a connection closed while idle.
func TestConnReadErrorRacingAWrite(t *testing.T) {
	inner := &scriptedConn{err: syscall.ECONNRESET}
	c := &conn{Conn: inner}
	inner.before = func() { _, _ = c.Write([]byte("request")) }
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d, %v; want the stand-in", n, err)
	}
	if !errors.Is(c.failure(), syscall.ECONNRESET) {
		t.Errorf("failure %v", c.failure())
	}
}
