package client

import (
	"context"
	"net/http"

	"punctual/httpapi"
	"punctual/store/runs"
)

// WithRunToken returns a client that authenticates with the token of an attempt, as a target does.
func (c *Client) WithRunToken(token string) *Client { return c.WithHeader("Punctual-Run-Token", token) }

// HeartbeatRun says that the target still works on a run, and puts the deadline off.
func (c *Client) HeartbeatRun(
	ctx context.Context, run string, beat httpapi.HeartbeatInput,
) (httpapi.Heartbeat, error) {
	return send[httpapi.Heartbeat](ctx, c, http.MethodPost, at("/v1/runs/%s/heartbeat", run), beat)
}

// CompleteRun says that the target has done the work of a run.
func (c *Client) CompleteRun(ctx context.Context, run string, with httpapi.CompletionInput) (runs.Run, error) {
	return send[runs.Run](ctx, c, http.MethodPost, at("/v1/runs/%s/complete", run), with)
}

// FailRun says that the target could not do the work of a run.
func (c *Client) FailRun(ctx context.Context, run string, failure httpapi.FailureInput) (runs.Run, error) {
	return send[runs.Run](ctx, c, http.MethodPost, at("/v1/runs/%s/fail", run), failure)
}

// RunProgress returns the progress that the target reported last.
func (c *Client) RunProgress(ctx context.Context, run string) (httpapi.Progress, error) {
	return get[httpapi.Progress](ctx, c, at("/v1/runs/%s/progress", run), nil)
}
