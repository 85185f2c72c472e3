package store

import (
	"context"
	"net/netip"
)

// Actor is the author of a change, as the audit log names it.
type Actor struct {
	Kind      ActorKind
	Name      string     // a key's id or a token's subject; on the command line, the user's login
	Address   netip.Addr // the request's source; invalid where there is none, as on the command line
	RequestID string
}

// ActorKind is the kind of credentials that an actor has shown.
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

// WithActor returns a context whose writes the audit log ascribes to a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// actor returns the author of a context's writes.
func actor(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Kind: ActorSystem}
}
