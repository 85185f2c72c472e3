package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"punctual/httpapi/problem"
)

// Client calls the API of one replica, or of a load balancer in front of several. Safe for concurrent use.
type Client struct {
	URL    string // base URL, without a trailing slash
	http   *http.Client
	header http.Header                        // sent with every request
	errors func(context.Context, error) error // makes of an error what callers get; nil: nothing
}

// timeout bounds a whole call.
const timeout = time.Minute

// New returns a client of the API at a base URL, with connections of its own.
func New(base string) *Client {
	return Through(base, &http.Transport{})
}

// Through returns a client whose requests go through a transport.
func Through(base string, transport http.RoundTripper) *Client {
	return &Client{URL: base, http: &http.Client{Timeout: timeout, Transport: transport}}
}

// WithHeader returns a client that sends one more header with every request.
func (c *Client) WithHeader(name, value string) *Client {
	own := *c
	own.header = c.header.Clone()
	if own.header == nil {
		own.header = http.Header{}
	}
	own.header.Set(name, value)
	return &own
}

// WithKey returns a client that authenticates with an API key or a token.
func (c *Client) WithKey(key string) *Client { return c.WithHeader("Authorization", "Bearer "+key) }

// WithErrors returns a client whose errors are made by a function of what they would be otherwise.
func (c *Client) WithErrors(of func(context.Context, error) error) *Client {
	own := *c
	own.errors = of
	return &own
}

// Error is an answer that is not 2xx.
type Error struct {
	Method, Path string
	Status       int
	Body         []byte
	Problem      *problem.Problem // what the API said; nil: somebody else answered
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.Method, e.Path, e.Status, http.StatusText(e.Status), e.Body)
}

// Is reports whether an error is an answer of the API with a code.
func Is(err error, code problem.Code) bool {
	answer, is := errors.AsType[*Error](err)
	return is && answer.Problem != nil && answer.Problem.Code == code
}

// Do sends in as JSON unless it is nil, a json.RawMessage byte for byte. It reads a 2xx answer that has a body into out
// unless out is nil. Any other answer is an *Error. Do returns the answer's status in each case; 0 means that there was
// no answer.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) (status int, err error) {
	status, err = c.do(ctx, method, path, in, out)
	if err != nil && c.errors != nil {
		err = c.errors(ctx, err)
	}
	return status, err
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body io.Reader
	if in != nil {
		raw, err := encoded(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return 0, err
	}
	for name, values := range c.header {
		request.Header[name] = values
	}
	if in != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return response.StatusCode, refusal(method, path, response, answer)
	}
	if out != nil && response.StatusCode != http.StatusNoContent {
		if err := json.Unmarshal(answer, out); err != nil {
			return response.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return response.StatusCode, nil
}

func encoded(in any) ([]byte, error) {
	if raw, ok := in.(json.RawMessage); ok {
		return raw, nil
	}
	return json.Marshal(in)
}

func refusal(method, path string, response *http.Response, answer []byte) *Error {
	e := &Error{Method: method, Path: path, Status: response.StatusCode, Body: answer}
	var said problem.Problem
	if json.Unmarshal(answer, &said) == nil && said.Code != "" {
		e.Problem = &said
	}
	return e
}

// BodyOf returns a body in the form of the API: JSON is sent as JSON, anything else as text.
func BodyOf(text []byte) json.RawMessage {
	if json.Valid(text) {
		return text
	}
	quoted, _ := json.Marshal(string(text)) // a string is always JSON
	return quoted
}

// Instant returns an instant in the form of queries.
func Instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
