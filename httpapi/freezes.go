package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"punctual/store"
)

// headerFrozen is on every answer to a caller of whom nothing is claimed now.
const headerFrozen = "Punctual-Frozen"

// freezesRemembered is how long it is remembered what is frozen.
const freezesRemembered = time.Second

// freezeBook knows what is frozen, as of a second ago at most.
type freezeBook struct {
	store *store.Store

	mu    sync.Mutex
	known store.Freezes
	until time.Time
}

// forget has the next request look.
func (b *freezeBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

// all returns what is frozen. While one request looks, the others wait for it.
func (b *freezeBook) all(ctx context.Context) (store.Freezes, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return b.known, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	defer cancel()
	known, err := b.store.Freezes(ctx)
	if err != nil {
		return store.Freezes{}, err
	}
	b.known, b.until = known, time.Now().Add(freezesRemembered)
	return known, nil
}

// of returns why nothing of a tenant is claimed; nil: something is, or it cannot be told.
func (b *freezeBook) of(ctx context.Context, tenant int32, role Role) *Frozen {
	all, err := b.all(ctx)
	if err != nil {
		return nil
	}
	freeze, whose := all.Of(tenant)
	return showFrozen(freeze, FreezeScope(whose), role)
}

// tell sets the header of an answer to the caller. An answer whose freeze cannot be told goes without.
func (b *freezeBook) tell(ctx context.Context, c caller, header http.Header) {
	if f := b.of(ctx, c.tenant.ID, c.role); f != nil {
		header.Set(headerFrozen, string(f.Scope)+"; since="+f.Since.Format(time.RFC3339)+"; reason="+string(f.Reason))
	}
}
