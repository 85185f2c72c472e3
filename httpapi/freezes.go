package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"punctual/httpapi/auth"
	"punctual/store"
	"punctual/store/freeze"
)

// headerFrozen is on every answer to a caller for whose tenant nothing is claimed now.
const headerFrozen = "Punctual-Frozen"

// freezesRemembered is how long a reading of the freezes is reused.
const freezesRemembered = time.Second

// freezeBook knows what is frozen, as of one second ago at most.
type freezeBook struct {
	store *store.Store

	mu    sync.Mutex
	known freeze.Freezes
	until time.Time
}

// forget makes the next request read the freezes anew.
func (b *freezeBook) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Time{}
}

// all returns what is frozen. While one request reads it, the others wait for that reading.
func (b *freezeBook) all(ctx context.Context) (freeze.Freezes, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) {
		return b.known, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auth.LookupTimeout)
	defer cancel()
	known, err := b.store.Freezes(ctx)
	if err != nil {
		return freeze.Freezes{}, err
	}
	b.known, b.until = known, time.Now().Add(freezesRemembered)
	return known, nil
}

// of returns the freeze that covers a tenant. It returns nil when there is none, or when the freezes cannot be read.
func (b *freezeBook) of(ctx context.Context, tenant int32, role auth.Role) *Frozen {
	all, err := b.all(ctx)
	if err != nil {
		return nil
	}
	freeze, whose := all.Of(tenant)
	return showFrozen(freeze, FreezeScope(whose), role)
}

// tell sets the header of an answer to the caller. When the freezes cannot be read, the answer goes out without it.
func (b *freezeBook) tell(ctx context.Context, c auth.Caller, header http.Header) {
	if f := b.of(ctx, c.Tenant.ID, c.Role); f != nil {
		header.Set(headerFrozen, string(f.Scope)+"; since="+f.Since.Format(time.RFC3339)+"; reason="+string(f.Reason))
	}
}
