package audit

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"

	"punctual/store/pg"
)

// Actor is the author of a change, as the audit log names it.
type Actor struct {
	Kind      ActorKind
	Name      string     // a key's id or a token's subject; on the command line, the user's login
	KeyName   string     // the name of a key
	Address   netip.Addr // the request's source; invalid where there is none, as on the command line
	RequestID string
}

// ActorKind is the kind of credentials that an actor has shown.
type ActorKind string

// The kinds of actors.
const (
	Anybody ActorKind = "anybody" // authentication is off
	Key     ActorKind = "key"
	Token   ActorKind = "token" // a JWT
	Command ActorKind = "command"
	Role    ActorKind = "database" // a role of the database, in SQL
	Link    ActorKind = "link"     // the link in a notice; the name is its recipient
	System  ActorKind = "system"   // Punctual itself, such as a pause that has run out
)

type actorKey struct{}

// WithActor returns a context whose writes the audit log ascribes to a.
func WithActor(ctx context.Context, a Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// ActorOf returns the author of a context's writes.
func ActorOf(ctx context.Context) Actor {
	if a, ok := ctx.Value(actorKey{}).(Actor); ok {
		return a
	}
	return Actor{Kind: System}
}

// String returns an actor as one word, such as key:019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11.
func (a Actor) String() string {
	if a.Name == "" {
		return string(a.Kind)
	}
	return string(a.Kind) + ":" + a.Name
}

// Words names the actor for people.
func (a Actor) Words() string {
	if a.Kind == Anybody {
		return Unnamed
	}
	return cmp.Or(Text(a.Kind, a.Name, a.KeyName), string(a.Kind))
}

// Unnamed names an actor for people while authentication is off.
const Unnamed = "a caller without sign-in"

// Columns returns the actor's columns in an entry: its kind, its name, its address and the request's id.
func (a Actor) Columns() []any {
	var address *string
	if a.Address.IsValid() {
		address = new(a.Address.WithZone("").String())
	}
	return []any{string(a.Kind), pg.OrNull(a.Name), address, pg.OrNull(a.RequestID)}
}

// Text names an actor for people, by its kind, its name and, for a key, the key's name. It is empty where the actor is
// unknown.
func Text(kind ActorKind, actor, keyName string) string {
	switch {
	case actor == "":
		return ""
	case kind == Link:
		return "the link sent to " + actor
	case keyName != "":
		return fmt.Sprintf("%s %s (%s)", kind, keyName, actor)
	}
	return fmt.Sprintf("%s %s", kind, actor)
}
