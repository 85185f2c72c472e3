package delivery

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"punctual/scheduler/delivery/wire"
)

func TestTheHeadOfARequest(t *testing.T) {
	u := &url.URL{Scheme: "https", Host: "[::1]:8443", Path: "/a b", RawPath: "/a%20b", RawQuery: "c=d&e"}
	tests := []struct {
		name string
		r    wire.Request
		want string
	}{
		{"nothing given", wire.Request{URL: u}, "GET /a%20b?c=d&e HTTP/1.1\r\nHost: [::1]:8443\r\nUser-Agent: punctual\r\n\r\n"},
		{
			"sorted, then extra",
			wire.Request{
				Method: "POST", URL: u, Body: []byte("12345"),
				Header: http.Header{"X-B": {"1", "2"}, "Accept": {"a"}, "X-Own": {"template"}},
				Extra:  []wire.Header{{Name: "Webhook-Id", Value: "7"}, {Name: "X-Own", Value: "old"}, {Name: "X-Own", Value: "extra"}, {Name: "A", Value: " trimmed\t"}},
			},
			"POST /a%20b?c=d&e HTTP/1.1\r\nHost: [::1]:8443\r\nUser-Agent: punctual\r\nContent-Length: 5\r\n" +
				"Accept: a\r\nX-B: 1\r\nX-B: 2\r\nWebhook-Id: 7\r\nX-Own: extra\r\nA: trimmed\r\n\r\n",
		},
		{
			"what follows from the request is not given",
			wire.Request{
				Method: "PUT", URL: u,
				Header: http.Header{"Host": {"evil"}, "Content-Length": {"7"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"}},
				Extra:  []wire.Header{{Name: "Content-Length", Value: "9"}},
			},
			"PUT /a%20b?c=d&e HTTP/1.1\r\nHost: [::1]:8443\r\nUser-Agent: punctual\r\nContent-Length: 0\r\n\r\n",
		},
		{
			"a user agent of its own",
			wire.Request{URL: u, Header: http.Header{"User-Agent": {"mine"}}},
			"GET /a%20b?c=d&e HTTP/1.1\r\nHost: [::1]:8443\r\nUser-Agent: mine\r\n\r\n",
		},
		{
			"no user agent",
			wire.Request{URL: u, Header: http.Header{"User-Agent": {""}}},
			"GET /a%20b?c=d&e HTTP/1.1\r\nHost: [::1]:8443\r\n\r\n",
		},
	}
	for _, test := range tests {
		for range 10 { // in the same order every time
			if got, err := appendHead([]byte("\r\nbefore"), &test.r, "punctual"); string(got) != "\r\nbefore"+test.want || err != nil {
				t.Errorf("%s: %q, %v", test.name, got, err)
			}
		}
	}
}

// Whatever comes past the checks at the time when a job is written: no part of a request ends a line on the wire.
func TestNoPartOfARequestCanEndALine(t *testing.T) {
	u := listen(t, answering(okAnswer))
	for _, c := range []string{"\r", "\n", "\r\n", "\x00", "\x7f", "\r\nX: y", "\n\nGET / HTTP/1.1\r\n\r\n"} {
		host, path, query := *u, *u, *u
		host.Host += c
		path.Opaque = "//" + u.Host + "/" + c
		query.RawQuery = c
		for name, r := range map[string]wire.Request{
			"method":         {Method: "GET" + c, URL: u},
			"host":           {URL: &host},
			"path":           {URL: &path},
			"query":          {URL: &query},
			"header":         {URL: u, Header: http.Header{"X": {"a" + c + "b"}}},
			"second value":   {URL: u, Header: http.Header{"X": {"a", c + "b"}}},
			"name":           {URL: u, Header: http.Header{"X" + c: {"a"}}},
			"user agent":     {URL: u, Header: http.Header{"User-Agent": {"a" + c + "b"}}},
			"extra":          {URL: u, Extra: []wire.Header{{Name: "X", Value: "a" + c + "b"}}},
			"name of extra":  {URL: u, Extra: []wire.Header{{Name: "X" + c, Value: "a"}}},
			"name, a colon":  {URL: u, Extra: []wire.Header{{Name: "X:" + c, Value: "a"}}},
			"name, a space":  {URL: u, Extra: []wire.Header{{Name: "X ", Value: "a"}}},
			"name, an empty": {URL: u, Extra: []wire.Header{{Name: "", Value: "a"}}},
		} {
			if name == "path" && !strings.ContainsAny(r.URL.RequestURI(), c) {
				continue
			}
			for _, size := range []int{4, 2 * maxAtOnce} {
				r.Body = make([]byte, size)
				res := newClient(t, Config{}).Send(t.Context(), r)
				if res.Reason != wire.ReasonConnect || res.Sent || strings.Contains(res.Error, c) {
					t.Errorf("%s with %q: %+v", name, c, res)
				}
			}
			if text, err := appendHead(nil, &r, "punctual"); err == nil {
				t.Errorf("%s with %q became %q", name, c, text)
			}
		}
	}
	if res := newClient(t, Config{UserAgent: "a\r\nX: y"}).Send(t.Context(), post(u)); res.Sent {
		t.Errorf("%+v", res)
	}
}
