package client

import (
	"context"

	"punctual/httpapi"
	"punctual/store/runs"
)

// Overview returns what needs attention now, and how the last 24 hours went.
func (c *Client) Overview(ctx context.Context) (httpapi.Overview, error) {
	return get[httpapi.Overview](ctx, c, "/v1/overview", nil)
}

// JobStats returns how the runs of a job went lately.
func (c *Client) JobStats(ctx context.Context, job string) (runs.JobStats, error) {
	return get[runs.JobStats](ctx, c, at("/v1/jobs/%s/stats", job), nil)
}
