package client

import (
	"context"
	"net/http"
	"net/url"

	"punctual/httpapi"
	"punctual/store/limits"
)

// Queues lists the queues, with what waits in them and why.
func (c *Client) Queues(ctx context.Context) (httpapi.QueueList, error) {
	return get[httpapi.QueueList](ctx, c, "/v1/queues", nil)
}

// Replicas lists the replicas.
func (c *Client) Replicas(ctx context.Context) (httpapi.ReplicaList, error) {
	return get[httpapi.ReplicaList](ctx, c, "/v1/replicas", nil)
}

// Breakers lists the hosts whose runs are held back.
func (c *Client) Breakers(ctx context.Context) (httpapi.BreakerList, error) {
	return get[httpapi.BreakerList](ctx, c, "/v1/breakers", nil)
}

// ResetBreakers resets the breakers of a host; of every host if it is empty.
func (c *Client) ResetBreakers(ctx context.Context, host string) (httpapi.BreakersReset, error) {
	in := map[string]string{}
	if host != "" {
		in["host"] = host
	}
	return post[httpapi.BreakersReset](ctx, c, "/v1/breakers/reset", in)
}

// Freeze stops all claims of a tenant or of the deployment.
func (c *Client) Freeze(ctx context.Context, freeze httpapi.FreezeInput) (httpapi.FreezeState, error) {
	return post[httpapi.FreezeState](ctx, c, "/v1/freeze", freeze)
}

// Unfreeze ends a freeze.
func (c *Client) Unfreeze(ctx context.Context, freeze httpapi.FreezeInput) (httpapi.FreezeState, error) {
	return post[httpapi.FreezeState](ctx, c, "/v1/unfreeze", freeze)
}

// Frozen says what is frozen.
func (c *Client) Frozen(ctx context.Context, query url.Values) (httpapi.FreezeState, error) {
	return get[httpapi.FreezeState](ctx, c, "/v1/freeze", query)
}

// Limits lists the limits of the tenant.
func (c *Client) Limits(ctx context.Context) (httpapi.LimitList, error) {
	return get[httpapi.LimitList](ctx, c, "/v1/limits", nil)
}

// Limit returns a limit, with the runs that hold it.
func (c *Client) Limit(ctx context.Context, name string) (limits.Limit, error) {
	return get[limits.Limit](ctx, c, at("/v1/limits/%s", name), nil)
}

// PutLimit creates a limit or changes it.
func (c *Client) PutLimit(ctx context.Context, name string, in httpapi.LimitInput) (limit limits.Limit, err error) {
	_, err = c.Do(ctx, http.MethodPut, at("/v1/limits/%s", name), in, &limit)
	return limit, err
}

// DeleteLimit deletes a limit that no job names.
func (c *Client) DeleteLimit(ctx context.Context, name string) error {
	return c.remove(ctx, at("/v1/limits/%s", name))
}
