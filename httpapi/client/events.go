package client

import (
	"context"
	"net/url"

	"punctual/httpapi"
)

// EmitEvent emits an event.
func (c *Client) EmitEvent(ctx context.Context, name string, event httpapi.EmitInput) (httpapi.Emitted, error) {
	return post[httpapi.Emitted](ctx, c, at("/v1/events/%s", name), event)
}

// TryEvent says which jobs an event would run.
func (c *Client) TryEvent(ctx context.Context, name string, event httpapi.EmitInput) (httpapi.WouldEmit, error) {
	event.DryRun = true
	return post[httpapi.WouldEmit](ctx, c, at("/v1/events/%s", name), event)
}

// EventNames lists the names of events.
func (c *Client) EventNames(ctx context.Context, query url.Values) (httpapi.List[httpapi.EventName], error) {
	return get[httpapi.List[httpapi.EventName]](ctx, c, "/v1/events", query)
}

// Events lists the events of a name, newest first.
func (c *Client) Events(ctx context.Context, name string, query url.Values) (httpapi.List[httpapi.Event], error) {
	return get[httpapi.List[httpapi.Event]](ctx, c, at("/v1/events/%s", name), query)
}

// Event returns an event with a page of its runs.
func (c *Client) Event(ctx context.Context, name, id string, query url.Values) (httpapi.EventDetails, error) {
	return get[httpapi.EventDetails](ctx, c, at("/v1/events/%s", name)+"/"+url.PathEscape(id), query)
}
