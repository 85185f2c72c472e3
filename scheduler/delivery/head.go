package delivery

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
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
// names, and Extra as it is. It refuses what [CheckMethod], [CheckURL] and [CheckHeader] should have refused before:
// what would end a line, and so begin a header or a request of its own.
func appendHead(text []byte, r *Request, userAgent string) ([]byte, error) {
	h, from := head{text: text}, len(text)
	h.line(cmp.Or(r.Method, http.MethodGet), " ", r.URL.RequestURI(), " HTTP/1.1")
	h.line("Host: ", r.URL.Host)
	if r.Header["User-Agent"] == nil && !has(r.Extra, "User-Agent") {
		h.header("User-Agent", userAgent)
	}
	if len(r.Body) > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		h.line("Content-Length: ", strconv.Itoa(len(r.Body)))
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
func (h *head) template(r *Request) {
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
	h.unfit = h.unfit || name == "" || strings.IndexFunc(name, notToken) >= 0
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

func has(headers []Header, name string) bool {
	return slices.ContainsFunc(headers, func(h Header) bool { return h.Name == name })
}
