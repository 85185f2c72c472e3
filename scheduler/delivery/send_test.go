package delivery

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"punctual/scheduler/delivery/wire"
)

// serve runs handler as a well-behaved target.
func serve(t testing.TB, handler http.HandlerFunc) *url.URL {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL + "/hook?a=b%2Fc")
	must(t, err)
	return u
}

func TestWhatReachesTheTarget(t *testing.T) {
	type seen struct {
		Method, URI, Body string
		Length            int64
		Chunked           bool
		Header            http.Header
	}
	got := make(chan seen, 1)
	u := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.RequestURI, string(body), r.ContentLength, r.TransferEncoding != nil, r.Header}
	})
	c := newClient(t, Config{UserAgent: "punctual/1.2"})
	for _, method := range wire.Methods {
		for _, body := range []string{"", "hello", strings.Repeat("x", 100_000)} {
			template := http.Header{"Accept": {"a", "b"}, "X-Both": {"template"}}
			res := c.Send(t.Context(), wire.Request{
				Method: method, URL: u, Header: template, Body: []byte(body),
				Extra: []wire.Header{{Name: "X-Both", Value: "extra"}, {Name: "Webhook-Id", Value: "id"}},
			})
			if !res.OK() || res.Status != 200 || !res.Sent {
				t.Fatalf("%s: %+v", method, res)
			}
			want := seen{method, "/hook?a=b%2Fc", body, int64(len(body)), false, http.Header{
				"Accept": {"a", "b"}, "X-Both": {"extra"}, "Webhook-Id": {"id"}, "User-Agent": {"punctual/1.2"},
			}}
			if body != "" || method == "POST" || method == "PUT" || method == "PATCH" {
				want.Header["Content-Length"] = []string{strconv.Itoa(len(body))}
			}
			if diff := cmp.Diff(want, <-got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", method, diff)
			}
			if diff := cmp.Diff(http.Header{"Accept": {"a", "b"}, "X-Both": {"template"}}, template); diff != "" {
				t.Errorf("the template was changed:\n%s", diff)
			}
		}
	}
}

// Many attempts share one template, and none gets another's headers. The race detector checks that they only read it.
func TestAttemptsShareATemplate(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Attempt") != r.URL.Query().Get("attempt") || r.Header.Get("Shared") != "yes" {
			w.WriteHeader(http.StatusConflict)
		}
	})
	c, template := newClient(t, Config{}), http.Header{"Shared": {"yes"}, "Attempt": {"none"}}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for n := range 50 {
				id, u := strconv.Itoa(100*worker+n), *u
				u.RawQuery = "attempt=" + id
				r := wire.Request{Method: "POST", URL: &u, Header: template, Extra: []wire.Header{{Name: "Attempt", Value: id}}, Body: []byte(id)}
				if res := c.Send(t.Context(), r); !res.OK() {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	group.Wait()
}

func TestStatuses(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.RawQuery)
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Location", "http://"+r.Host+"/?200")
		w.WriteHeader(status)
	})
	c := newClient(t, Config{})
	for status, want := range map[int]wire.Reason{
		200: "", 201: "", 202: "", 204: "", 299: "",
		300: wire.ReasonRedirect, 301: wire.ReasonRedirect, 302: wire.ReasonRedirect,
		304: wire.ReasonRedirect, 307: wire.ReasonRedirect,
		308: wire.ReasonRedirect,
		400: wire.ReasonHTTP4xx, 401: wire.ReasonHTTP4xx, 404: wire.ReasonHTTP4xx,
		410: wire.ReasonHTTP4xx, 429: wire.ReasonHTTP4xx,
		500: wire.ReasonHTTP5xx, 503: wire.ReasonHTTP5xx, 599: wire.ReasonHTTP5xx, 600: wire.ReasonConnect,
	} {
		u := *u
		u.RawQuery = strconv.Itoa(status)
		res := c.Send(t.Context(), post(&u))
		if res.Status != status || res.Reason != want || res.OK() != (want == "") || (res.Error == "") != (want == "") ||
			!res.Sent {
			t.Errorf("%d: %+v", status, res)
		}
		if asks := want != ""; (res.RetryAfter == 7*time.Second) != asks {
			t.Errorf("%d: retry after %s", status, res.RetryAfter)
		}
	}
}

func TestHowMuchOfABodyIsKept(t *testing.T) {
	const long = 5000
	more, none := 2000, 0
	tests := []struct {
		name      string
		limit     int64
		status    int
		size      int
		keepBody  bool
		keepBytes *int
		kept      int
		truncated bool
	}{
		{"success, not wanted", maxResponseBytes, 200, 100, false, nil, 0, true},
		{"success, wanted", maxResponseBytes, 200, long, true, nil, long, false},
		{"success, empty", maxResponseBytes, 200, 0, true, nil, 0, false},
		{"success, longer than the cap", 100, 200, long, true, nil, 100, true},
		{"failure", maxResponseBytes, 500, 100, false, nil, 100, false},
		{"failure, wanted or not", maxResponseBytes, 500, long, true, nil, keptOfFailure, true},
		{"failure, more kept", maxResponseBytes, 500, long, false, &more, more, true},
		{"failure, kept up to the cap", 10, 500, long, false, nil, 10, true},
		{"failure, nothing kept", maxResponseBytes, 500, long, false, &none, 0, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := bytes.Repeat([]byte("0123456789"), long/10)[:test.size]
			u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write(body)
			})
			r := post(u)
			r.KeepBody, r.KeepBytes = test.keepBody, test.keepBytes
			c := newClient(t, Config{})
			c.maxBytes = test.limit
			res := c.Send(t.Context(), r)
			if res.Status != test.status || !bytes.Equal(res.Body, body[:test.kept]) || res.Truncated != test.truncated {
				t.Errorf("status %d, kept %d, truncated %t; want %d, %d, %t",
					res.Status, len(res.Body), res.Truncated, test.status, test.kept, test.truncated)
			}
		})
	}
}

func TestCompressedBodiesStayCompressed(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "" {
			t.Errorf("asked for %q", got)
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "bomb")
	})
	r := post(u)
	r.KeepBody = true
	if res := newClient(t, Config{}).Send(t.Context(), r); string(res.Body) != "bomb" {
		t.Errorf("got %+v", res)
	}
}

func TestTheEnvironmentsProxyIsIgnored(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	u := serve(t, func(http.ResponseWriter, *http.Request) {})
	if res := newClient(t, Config{}).Send(t.Context(), post(u)); !res.OK() {
		t.Errorf("got %+v", res)
	}
}

// One replica must carry 10,000 requests in flight. The target answers none before it has received all of them.
func TestTenThousandInFlight(t *testing.T) {
	n := 10_000
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	n = min(n, (int(limit.Cur)-500)/2) // both ends are in this process
	if raceEnabled {
		n = min(n, 400)
	}
	var arrived atomic.Int64
	all := make(chan struct{})
	u := listen(t, func(nc net.Conn, _ int) {
		buf := make([]byte, 4096)
		for {
			// A small request comes in one packet, so one Read gets all of it.
			if _, err := nc.Read(buf); err != nil {
				return
			}
			if arrived.Add(1) == int64(n) {
				close(all)
			}
			<-all
			_, _ = io.WriteString(nc, okAnswer)
		}
	})
	c := newClient(t, Config{})
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			r := post(u)
			r.Timeout = time.Minute
			if res := c.Send(t.Context(), r); !res.OK() {
				t.Errorf("%+v", res)
			}
		})
	}
	<-all
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d in flight, %d MB from the system for both ends", n, m.Sys>>20)
	group.Wait()
}
