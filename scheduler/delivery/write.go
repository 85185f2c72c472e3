package delivery

import (
	"net"
	"sync"

	"punctual/scheduler/failpoint"
)

// maxAtOnce is the size up to which the system takes a request whether the target reads or not. An idle socket of Linux
// or macOS has at least that much room.
const maxAtOnce = 16 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// start has the request written. A target may answer before it has read all of a large request, and then read no more.
// So that its answer is heard, a goroutine writes such a request. With others writing does not wait for the target.
func (c *conn) start(r *Request, userAgent string) {
	buffer := buffers.Get().(*[]byte)
	head, err := appendHead((*buffer)[:0], r, userAgent)
	switch *buffer = head; {
	case err != nil:
		c.failure = err
	case len(head)+len(r.Body) <= maxAtOnce:
		c.write(buffer, r.Body)
	default:
		c.writing = make(chan struct{})
		go func() {
			defer close(c.writing)
			c.write(buffer, r.Body)
		}()
	}
}

// write writes the request whose head is in the buffer, and notes how much of it was taken. It is called once in an
// exchange.
func (c *conn) write(buffer *[]byte, body []byte) {
	failpoint.At(failpoint.SendWriting)
	if c.writing == nil {
		*buffer = append(*buffer, body...)
		n, err := c.Write(*buffer)
		c.wrote, c.failure = int64(n), err
	} else {
		parts := net.Buffers{*buffer, body} // and not copied
		c.wrote, c.failure = parts.WriteTo(c.Conn)
	}
	failpoint.At(failpoint.SendWritten)
	buffers.Put(buffer)
}
