package client

import (
	"context"
	"net/url"

	"punctual/httpapi"
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
