package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/delivery/wire"
)

// A script is the connection to a target that answers the first request with the given bytes, in pieces, and then hangs
// up or says no more. A wait for more fails at once, as if the attempt's time were up.
type script struct {
	mu     sync.Mutex
	change *sync.Cond
	answer []byte
	pieces []byte // the lengths of the pieces, less one; repeated
	reads  int
	hangUp bool
	asked  bool // the request is written
	idle   bool // the client keeps the connection: it may wait
	waits  bool // it does wait
	closed bool
}

func newScript(answer, pieces []byte, hangUp bool) *script {
	s := &script{answer: answer, pieces: pieces, hangUp: hangUp}
	s.change = sync.NewCond(&s.mu)
	return s
}

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.asked && !s.closed {
		s.change.Wait()
	}
	for s.idle && !s.closed && len(s.answer) == 0 && !s.hangUp {
		s.waits = true
		s.change.Broadcast()
		s.change.Wait()
	}
	switch {
	case s.closed:
		return 0, net.ErrClosed
	case len(s.answer) > 0:
		n := len(p)
		if len(s.pieces) > 0 {
			n = min(n, int(s.pieces[s.reads%len(s.pieces)])+1)
		}
		s.reads++
		n = copy(p[:n], s.answer)
		s.answer = s.answer[n:]
		return n, nil
	case s.hangUp:
		return 0, io.EOF
	}
	return 0, os.ErrDeadlineExceeded
}

func (s *script) set(flag *bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*flag = true
	s.change.Broadcast()
}

// reusable waits until the client waits for an end of the connection that does not come, or has closed it.
func (s *script) reusable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && !s.waits {
		s.change.Wait()
	}
	return !s.closed
}

func (s *script) Write(p []byte) (int, error)      { s.set(&s.asked); return len(p), nil }
func (s *script) Close() error                     { s.set(&s.closed); return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// An outcome is what a client makes of an answer.
type outcome struct {
	Status int
	Header map[string]string
	Body   string
	Cut    bool
	Error  string // as [classify] words it
	Reused bool   // the connection would be used for the next request
}

const (
	headerLimit = 600 // so that few bytes reach it
	bodyLimit   = 1 << 20
)

// A pair is Punctual's client and net/http's.
type pair struct {
	client    *Client
	transport *http.Transport
	next      *script
}

func newPair() *pair {
	p := &pair{client: New(Config{})}
	p.client.maxHeader, p.client.maxBytes = headerLimit, bodyLimit
	p.client.everybody.connect = func(context.Context, string, string) (net.Conn, error) { return p.next, nil }
	p.transport = &http.Transport{
		DialContext:        func(context.Context, string, string) (net.Conn, error) { return p.next, nil },
		DisableCompression: true, MaxResponseHeaderBytes: headerLimit,
	}
	return p
}

func (p *pair) close() {
	p.client.Close()
	p.transport.CloseIdleConnections()
}

var target = &url.URL{Scheme: "http", Host: "target", Path: "/"}

// ours is the outcome with Punctual's client.
func (p *pair) ours(method string, s *script) outcome {
	p.next = s
	all := bodyLimit
	res := p.client.Send(context.Background(), wire.Request{
		Method: method, URL: target, Timeout: time.Hour, KeepBytes: &all,
	})
	o := outcome{Status: res.Status, Header: res.Header, Body: string(res.Body), Cut: res.Truncated}
	o.Error = kind(res.Error)
	for _, idle := range p.client.everybody.idle {
		o.Reused = len(idle) > 0 && idle[0].usable()
	}
	p.client.Close()
	return o
}

// kind returns an error without the fault of the answer that it names: net/http names another one, or none.
func kind(text string) string {
	for _, begin := range []string{notHTTP, "the target speaks ", "the headers of the answer", "the target closed "} {
		if strings.HasPrefix(text, begin) {
			return notHTTP
		}
	}
	return text
}

// theirs is the outcome with net/http's client.
func (p *pair) theirs(method string, s *script) (o outcome) {
	p.next = s
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{PutIdleConn: func(err error) {
		if err == nil {
			s.set(&s.idle)
		}
	}})
	req := (&http.Request{Method: method, URL: target, Header: http.Header{}}).WithContext(ctx)
	resp, err := p.transport.RoundTrip(req)
	if err == nil {
		o.Status = resp.StatusCode
		_, o.Error = textOf(&wire.Request{URL: target}, resp)
	}
	if err == nil && resp.StatusCode >= 200 {
		o.Header = keptHeaders(resp.Header, true)
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, bodyLimit))
		o.Body, o.Cut = string(body), err != nil
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	o.Reused = s.reusable()
	p.transport.CloseIdleConnections()
	switch {
	case err == nil, o.Error != "": // a failure keeps the words of its status
	case errors.Is(err, os.ErrDeadlineExceeded) && s.heard():
		o.Error = "the answer was not complete within 1h"
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.Error = "no answer within 1h"
	default:
		_, text := classify(err, true)
		o.Error = kind(text)
	}
	return o
}

func (s *script) heard() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads > 0
}

// differentialSeeds are answers from which the fuzzer sets out.
func differentialSeeds() []string {
	seeds := []string{
		"", "H", "HTTP/1.1 200 OK\r\n\r\n", okAnswer, okAnswer + "more", okAnswer + okAnswer,
		"HTTP/1.0 200 OK\r\n\r\nto the end", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2;a=b\r\nok\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nBad Name: a\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "HTTP/1.1  200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\nmore",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + okAnswer,
		"HTTP/0.0 000 \n\n", "HTTP/1.1 099 Huh\r\nContent-Length: 0\r\n\r\n", "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 503 No\r\nRetry-After: 7\r\nServer: a\r\nContent-Length: 10\r\n\r\nok",
		"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", headerLimit) + "\r\n\r\n", strings.Repeat("x", 5000),
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 30), "220 mail.example.com ESMTP\r\n", "\x00\xff\r\n\r\n",
	}
	for n := headerLimit - 60; n < headerLimit+10; n += 7 {
		seeds = append(seeds, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: "+strings.Repeat("x", n-60)+"\r\n\r\nok")
	}
	return seeds
}

// Answers of any bytes, in any pieces, are read as net/http reads them.
//
// Their status, headers that are kept, body, kind of error, and whether the connection is used again.
//
//prove:targets
func FuzzAgainstTransport(f *testing.F) {
	for i, seed := range differentialSeeds() {
		for _, hangUp := range []bool{false, true} {
			f.Add([]byte(seed), []byte{}, byte(i), hangUp)
			f.Add([]byte(seed), []byte{0}, byte(0), hangUp)
			f.Add([]byte(seed), []byte{20, 3}, byte(1), hangUp)
		}
	}
	log.SetOutput(io.Discard) // net/http logs what comes unasked
	p := newPair()
	f.Cleanup(func() { p.close(); log.SetOutput(os.Stderr) })
	f.Fuzz(func(t *testing.T, answer, pieces []byte, method byte, hangUp bool) {
		m := []string{http.MethodGet, http.MethodHead, http.MethodPost}[method%3]
		theirs := p.theirs(m, newScript(bytes.Clone(answer), pieces, hangUp))
		ours := p.ours(m, newScript(bytes.Clone(answer), pieces, hangUp))
		if !reflect.DeepEqual(theirs, ours) {
			t.Errorf("%s %q, in pieces %v, then hang up: %t (-net/http +ours):\n%s", m, answer, pieces, hangUp,
				cmp.Diff(theirs, ours))
		}
	})
}
