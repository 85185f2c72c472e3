package store

import (
	"context"
	"net/netip"
)

// Actor is who makes a change, as the audit log names them.
type Actor struct {
	Kind      ActorKind
	Name      string     // the key's id, or the token's subject; for people of the command line, their login
	Address   netip.Addr // where the request came from; invalid when it came from nowhere, as on the command line
	RequestID string
}

// ActorKind says what an actor has proved who it is with.
type ActorKind string

// The kinds of actors.
const (
	ActorAnybody ActorKind = "anybody" // authentication is off
	ActorKey     ActorKind = "key"
	ActorToken   ActorKind = "token" // a JWT
	ActorCommand ActorKind = "command"
	ActorSystem  ActorKind = "system" // Punctual itself, such as a pause that has run out
)

type actorKey struct{}

// WithActor returns a context whose writes are a's.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actor returns whose the writes of a context are.
func actor(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Kind: ActorSystem}
}
