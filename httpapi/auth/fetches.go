package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// FetchAgain is how long an answer of the issuer, or a failed fetch, is reused. The library fetches the issuer's keys
// for every token that no known key has signed. Without this bound, anybody could make it fetch at will.
const FetchAgain = 10 * time.Second

const (
	fetchTimeout = 5 * time.Second
	mostFetched  = 1 << 20 // bytes
)

// fetches is a transport for the few documents of an issuer. A document that is asked for again too soon comes from
// memory.
type fetches struct {
	mu        sync.Mutex // held while a document is fetched; others want the same document
	transport http.RoundTripper
	documents map[string]*document
	told      error
}

type document struct {
	at   time.Time
	body []byte
	err  *fetchError
}

// fetchError says why a document could not be fetched.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

func newFetches() *fetches {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // hours pass between requests
	return &fetches{transport: transport, documents: map[string]*document{}}
}

// RoundTrip implements http.RoundTripper for GET requests.
func (f *fetches) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.documents[r.URL.String()]
	if d == nil || time.Since(d.at) >= FetchAgain {
		d = &document{at: time.Now()}
		if body, err := f.fetch(r); err != nil {
			d.err = &fetchError{err}
		} else {
			d.body, f.told = body, nil
		}
		f.documents[r.URL.String()] = d
	}
	if d.err != nil {
		return nil, d.err
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(d.body)),
		ContentLength: int64(len(d.body)),
	}, nil
}

// fetch fetches a document. A transport follows no redirects.
func (f *fetches) fetch(r *http.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	response, err := f.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostFetched))
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", r.URL.Redacted(), response.Status)
	case !json.Valid(body):
		return nil, fmt.Errorf("%s is not JSON of at most %d bytes", r.URL.Redacted(), mostFetched)
	}
	return body, nil
}

// news reports whether an error differs from the one it was asked about last.
func (f *fetches) news(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := f.told != nil && f.told.Error() == err.Error()
	f.told = err
	return !again
}
