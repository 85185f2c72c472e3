package delivery

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

// A witness counts the requests that reach it by their header Attempt.
type witness struct {
	mu   sync.Mutex
	seen map[string]int
}

func (w *witness) note(req *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = map[string]int{}
	}
	w.seen[req.Header.Get("Attempt")]++
}

func (w *witness) count(attempt string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[attempt]
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// closesUnanswered answers all requests but the second of its first connection: that one makes it hang up.
func (w *witness) closesUnanswered(hangUp func(net.Conn)) func(net.Conn, int) {
	return func(nc net.Conn, number int) {
		for n, req := range requests(nc) {
			w.note(req)
			if number == 1 && n == 2 {
				hangUp(nc)
				return
			}
			answer := okAnswer
			if req.Method == http.MethodHead {
				answer = okAnswer[:len(okAnswer)-2]
			}
			_, _ = io.WriteString(nc, answer)
		}
	}
}

func attemptRequest(u *url.URL, method, id string, body []byte) wire.Request {
	return wire.Request{
		Method: method, URL: u, Body: body, Timeout: 20 * time.Second,
		Extra: []wire.Header{{Name: "Attempt", Value: id}, {Name: "Idempotency-Key", Value: id}, {Name: "X-Idempotency-Key", Value: id}},
	}
}

// A reused connection closes unanswered. The attempt is one request.
//
// With every method, with and without a body.
//
//prove:targets
func TestAReusedConnectionThatClosesUnansweredCarriesOneRequest(t *testing.T) {
	hangUps := map[string]func(net.Conn){
		"closed":       func(net.Conn) {},
		"part of line": func(nc net.Conn) { _, _ = io.WriteString(nc, "HTTP/1.") },
		"part of head": func(nc net.Conn) { _, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-") },
		"interim only": func(nc net.Conn) { _, _ = io.WriteString(nc, "HTTP/1.1 103 Early Hints\r\n\r\n") },
		"reset":        reset,
		"half closed": func(nc net.Conn) {
			closeWrite(nc)
			_, _ = io.Copy(io.Discard, nc)
		},
	}
	for _, scheme := range []string{"http", "https"} {
		for name, hangUp := range hangUps {
			for _, method := range append(wire.Methods, "TRACE") {
				for _, body := range []string{"", "body"} {
					t.Run(fmt.Sprintf("%s %s %s %s", scheme, name, method, body), func(t *testing.T) {
						w := new(witness)
						u, roots := listenAs(t, scheme, func(nc net.Conn, number int) {
							defer nc.Close()
							w.closesUnanswered(hangUp)(nc, number)
						})
						c := newClient(t, Config{RootCAs: roots})

						if res := c.Send(t.Context(), attemptRequest(u, method, "first", []byte(body))); !res.OK() {
							t.Fatalf("first: %+v", res)
						}
						res := c.Send(t.Context(), attemptRequest(u, method, "second", []byte(body)))
						if res.Reason != wire.ReasonConnect || !res.Sent || res.Status != 0 {
							t.Errorf("got %+v, want a failed connection, sent", res)
						}
						if res := c.Send(t.Context(), attemptRequest(u, method, "third", []byte(body))); !res.OK() {
							t.Errorf("third: %+v", res)
						}
						for _, id := range []string{"first", "second", "third"} {
							if n := w.count(id); n != 1 {
								t.Errorf("the target saw the %s attempt %d times", id, n)
							}
						}
					})
				}
			}
		}
	}
}

// The witness notices a repeated request: left to itself, net/http sends this one twice.
func TestTheWitnessSeesNetHTTPRepeatARequest(t *testing.T) {
	w := new(witness)
	u := listen(t, w.closesUnanswered(func(net.Conn) {}))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, id := range []string{"first", "second"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		req.Header.Set("Attempt", id)
		resp, err := transport.RoundTrip(req)
		must(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if n := w.count("second"); n != 2 {
		t.Errorf("seen %d times; if net/http no longer repeats, its client may do", n)
	}
}

// While targets hang up at random moments, none sees an attempt twice, and no attempt fails without having been sent.
func TestNoAttemptIsSeenTwiceWhileConnectionsKeepEnding(t *testing.T) {
	w := new(witness)
	u := listen(t, func(nc net.Conn, _ int) {
		for _, req := range requests(nc) {
			w.note(req)
			switch rand.IntN(8) {
			case 0:
				return
			case 1: // answers, and closes without having announced it
				_, _ = io.WriteString(nc, okAnswer)
				return
			case 2:
				_, _ = io.WriteString(nc, okAnswer)
				_ = nc.(*net.TCPConn).SetLinger(0)
				return
			}
			_, _ = io.WriteString(nc, okAnswer)
		}
	})
	c := newClient(t, Config{})
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for n := range 500 {
				id := strconv.Itoa(worker) + "/" + strconv.Itoa(n)
				r := attemptRequest(u, []string{http.MethodGet, http.MethodPost}[n%2], id, nil)
				if n%4 > 1 {
					r.Body = []byte("body")
				}
				if r.Method == http.MethodGet {
					r.Body = nil
				}
				res, seen := c.Send(context.Background(), r), w.count(id)
				if seen > 1 || (res.OK() && seen != 1) || (!res.OK() && !res.Sent) {
					t.Errorf("attempt %s seen %d times: %+v", id, seen, res)
				}
			}
		})
	}
	group.Wait()
}
