package scheduler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
)

// seen is a request as its target received it.
type seen struct {
	Method, Path, Body string
	Header             http.Header
}

// target starts a server that answers with the given status. It returns the URL and the requests that arrive.
func target(t *testing.T, status int) (url string, requests <-chan seen) {
	t.Helper()
	got := make(chan seen, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.URL.RequestURI(), string(body), r.Header}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func client(t testing.TB) *delivery.Client {
	t.Helper()
	c := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	t.Cleanup(c.Close)
	return c
}
