package delivery

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"

	"punctual/scheduler/delivery/wire"
)

// A faultError is what is wrong with an answer that is not HTTP/1.1.
type faultError struct{ text string }

func (e *faultError) Error() string { return e.text }

const (
	notHTTP   = "the answer is not valid HTTP"
	onlyHTTP2 = "the target speaks only HTTP/2; Punctual sends HTTP/1.1"
)

// maxSeen is how much of an answer is kept until its head was read, to name the fault if there is one.
const maxSeen = 4 << 10

// faulty explains why the head of an answer could not be read. An error of the connection remains what it is, unless
// what came before it cannot be the beginning of an answer.
func (c *conn) faulty(err error) error {
	var seen []byte
	if c.seen != nil {
		seen = *c.seen
	}
	switch {
	case errors.Is(err, errTooLong):
		return &faultError{"the headers of the answer are larger than " + strconv.Itoa(maxHeaderBytes>>10) + " KiB"}
	case isDeadline(err), broken(err) && !foreign(seen):
		return err
	}
	if text := fault(seen); text != "" {
		return &faultError{text}
	}
	return io.ErrUnexpectedEOF
}

// faultyBody explains why a body could not be read. Only chunks have a form.
func faultyBody(err error) error {
	if isDeadline(err) || broken(err) {
		return err
	}
	return &faultError{notHTTP + ": its chunks are malformed"}
}

// broken reports whether an error is one of the connection.
func broken(err error) bool {
	var failed net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &failed)
}

// foreign reports whether an answer cannot be HTTP/1, however it goes on.
func foreign(seen []byte) bool {
	const begin = "HTTP/"
	n := min(len(seen), len(begin))
	return string(seen[:n]) != begin[:n]
}

// fault names what is wrong with the beginning of an answer, and repeats nothing of it. It is empty if nothing is but
// that the head ends too early.
func fault(seen []byte) string {
	head := final(seen)
	if is := otherProtocol(head); is != "" {
		return is
	}
	first, rest, whole := bytes.Cut(head, []byte("\n"))
	if !whole && !foreign(first) {
		return ""
	}
	if is := statusFault(string(bytes.TrimSuffix(first, []byte("\r")))); is != "" {
		return notHTTP + ": " + is
	}
	switch is, whole := headerFault(rest); {
	case is != "":
		return notHTTP + ": " + is
	case !whole && len(seen) < maxSeen:
		return ""
	}
	return notHTTP
}

var interim = regexp.MustCompile(`^HTTP/1\.[01] 1\d\d( |\r|$)`)

// final returns what follows the interim answers.
func final(seen []byte) []byte {
	for {
		head, rest, whole := bytes.Cut(seen, []byte("\r\n\r\n"))
		if !whole || !interim.Match(head) {
			return seen
		}
		seen = rest
	}
}

// otherProtocol recognises targets that speak something else, by the first bytes that they send.
func otherProtocol(head []byte) string {
	const (
		settings, goAway = 4, 7       // frames of HTTP/2, RFC 9113 section 6
		alert, handshake = 0x15, 0x16 // records of TLS
	)
	switch {
	case len(head) >= 9 && (head[3] == settings || head[3] == goAway) && string(head[5:9]) == "\x00\x00\x00\x00",
		bytes.HasPrefix(head, []byte("PRI * HTTP/2")):
		return onlyHTTP2
	case len(head) >= 2 && (head[0] == alert || head[0] == handshake) && head[1] == 3:
		return "the target speaks TLS on this port; write https in target.url"
	}
	return ""
}

func statusFault(line string) string {
	version, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	switch {
	case line == "":
		return "it begins with an empty line"
	case version == "ICY":
		return "it begins with ICY, as radio streams do"
	case foreign([]byte(line)):
		return "it begins without a status line, as in HTTP/0.9"
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return "its version is neither HTTP/1.1 nor HTTP/1.0"
	case len(code) != 3 || strings.Trim(code, "0123456789") != "":
		return "its status is not a number of three digits"
	}
	return ""
}

// headerFault names the first fault in the header lines of an answer. whole says that they have an end.
func headerFault(lines []byte) (is string, whole bool) {
	length := ""
	for n := 0; ; n++ {
		next, rest, whole := bytes.Cut(lines, []byte("\n"))
		line := string(bytes.TrimSuffix(next, []byte("\r")))
		if line == "" || !whole {
			return "", whole
		}
		name, value, colon := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		folded := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case folded && n == 0:
			return "its first header line is folded", true
		case strings.ContainsFunc(line, wire.IsControl):
			return "a header has a control character", true
		case folded:
		case !colon:
			return "a header line has no colon", true
		case name == "" || strings.ContainsFunc(strings.TrimRight(name, " \t"), wire.NotToken):
			return "a header has a name that is none", true
		case strings.EqualFold(name, "Transfer-Encoding") && !strings.EqualFold(value, "chunked"):
			return "its Transfer-Encoding is not chunked", true
		case strings.EqualFold(name, "Content-Length"):
			if value == "" || strings.Trim(value, "0123456789") != "" {
				return "its Content-Length is not a number", true
			}
			if length != "" && length != value {
				return "it has two values of Content-Length", true
			}
			length = value
		}
		lines = rest
	}
}
