package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// API is a client of one replica's API. It speaks JSON only.
type API struct {
	URL    string
	client *http.Client
	header http.Header // sent with every request
}

// NewAPI returns a client of the API at a base URL.
func NewAPI(url string) *API {
	return &API{URL: url, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{}}}
}

// WithHeader returns an API that sends one more header with every request.
func (a *API) WithHeader(name, value string) *API {
	header := a.header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set(name, value)
	return &API{URL: a.URL, client: a.client, header: header}
}

// WithKey returns an API that authenticates with an API key or a token.
func (a *API) WithKey(key string) *API { return a.WithHeader("Authorization", "Bearer "+key) }

// Do sends in as JSON unless it is nil, and reads a 2xx answer into out unless out is nil. Any other answer is an error
// that contains its body; Do returns its status too.
func (a *API) Do(ctx context.Context, method, path string, in, out any) (status int, err error) {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL+path, body)
	if err != nil {
		return 0, err
	}
	for name, values := range a.header {
		request.Header[name] = values
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := a.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return response.StatusCode, err
	}
	if response.StatusCode/100 != 2 {
		return response.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			return response.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return response.StatusCode, nil
}

// Create creates jobs through the batch route, a thousand at a time.
func (a *API) Create(ctx context.Context, jobs []JobSpec) error {
	for len(jobs) > 0 {
		n := min(len(jobs), 1000)
		if _, err := a.Do(ctx, http.MethodPost, "/v1/jobs/batch", map[string]any{"jobs": jobs[:n]}, nil); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

// JobSpec is a job in the API's own words.
type JobSpec map[string]any
