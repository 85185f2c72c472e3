package delivery

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/failpoint"
)

// errUnfit is the error of a request that would be something else on the wire than what it says.
var errUnfit = errors.New("the request has a control character, or a header with a name that is none")

// A head is the part of a request before its body, while it is put together.
type head struct {
	text  []byte
	lines int
	unfit bool
}

// appendHead appends the head of a request: the headers that follow from it, those of the template sorted by their
// names, and Extra as it is. It refuses what the checks of package wire should have refused before: what
// would end a line, and so begin a header or a request of its own.
func appendHead(text []byte, r *wire.Request, userAgent string) ([]byte, error) {
	h, from := head{text: text}, len(text)
	h.line(cmp.Or(r.Method, http.MethodGet), " ", r.URL.RequestURI(), " HTTP/1.1")
	h.line("Host: ", cmp.Or(r.Host, r.URL.Host))
	if r.Header["User-Agent"] == nil && !has(r.Extra, "User-Agent") {
		h.header("User-Agent", userAgent)
	}
	if len(r.Body) > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		h.line("Content-Length: ", strconv.Itoa(len(r.Body)))
	}
	if r.Fresh {
		h.line("Connection: close")
	}
	h.template(r)
	for i, e := range r.Extra {
		if !has(r.Extra[i+1:], e.Name) {
			h.header(e.Name, e.Value)
		}
	}
	h.line()
	if h.unfit || controls(h.text[from:]) != len("\r\n")*h.lines {
		return nil, errUnfit
	}
	return h.text, nil
}

// template writes the headers that every attempt of the job carries, except those that Extra replaces.
func (h *head) template(r *wire.Request) {
	var room [16]string
	names := room[:0]
	for name := range r.Header {
		if !has(r.Extra, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range r.Header[name] {
			h.header(name, value)
		}
	}
}

func (h *head) header(name, value string) {
	switch name {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer": // they follow from the request
		return
	}
	if name == "User-Agent" && value == "" {
		return
	}
	h.unfit = h.unfit || name == "" || strings.IndexFunc(name, wire.NotToken) >= 0
	h.line(name, ": ", strings.Trim(value, " \t"))
}

func (h *head) line(parts ...string) {
	for _, part := range parts {
		h.text = append(h.text, part...)
	}
	h.text = append(h.text, "\r\n"...)
	h.lines++
}

// controls counts the control characters of a head. Its line ends are two each.
func controls(text []byte) (n int) {
	for _, b := range text {
		if b < ' ' && b != '\t' || b == 0x7f {
			n++
		}
	}
	return n
}

func has(headers []wire.Header, name string) bool {
	return slices.ContainsFunc(headers, func(h wire.Header) bool { return h.Name == name })
}

// maxAtOnce is the size up to which the system takes a request whether the target reads or not. An idle socket of Linux
// or macOS has at least that much room.
const maxAtOnce = 16 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// start has the request written. A target may answer before it has read all of a large request, and then read no more.
// So that its answer is heard, a goroutine writes such a request. With others writing does not wait for the target.
func (c *conn) start(r *wire.Request, userAgent string) {
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
