package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	timerate "golang.org/x/time/rate"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/tenants"
)

const (
	// Remembered is how long the database's answer about a key or a tenant is reused. A revoked key works for that long
	// on replicas that know it.
	Remembered = 2 * time.Second
	// LookupTimeout bounds a lookup that several requests wait for. It goes on when one of them goes away.
	LookupTimeout = 5 * time.Second

	mostKeys      = 10_000 // keys that a replica remembers
	mostTenants   = 10_000 // tenants that a replica remembers
	mostAddresses = 10_000 // addresses whose unknown keys it counts
)

// Lookups of unknown keys per second and replica: for one address, and for all. A lookup costs Postgres some 50 µs,
// so a flood of wrong keys costs it a hundredth of a processor. Even so, after a start a replica knows the keys of
// hundreds of clients behind one load balancer within a second.
const (
	UnknownOfAddress = 100 // a second
	BurstOfAddress   = 500 // after a while without any
	unknownOfAll     = 200
	burstOfAll       = 1000
)

var keyFloods = floodBounds{
	ofAddress: UnknownOfAddress, burst: BurstOfAddress, ofAll: unknownOfAll, burstOfAll: burstOfAll,
}

// ErrUnauthenticated is the only answer to an invalid key or token, whatever is wrong with it.
var ErrUnauthenticated = problem.New(problem.CodeUnauthenticated,
	"Send a valid API key or token in the header Authorization: Bearer <key>.").With("WWW-Authenticate", "Bearer")

// keyring remembers the keys that worked lately. It holds their hashes only, and no invalid keys: a flood of those
// does not fill it.
type keyring struct {
	store   *store.Store
	known   *lru.Cache[[sha256.Size]byte, remembered[tenants.Credential]]
	looks   singleflight.Group
	unknown *floodgate
}

// remembered is what was learned, and how long it may be reused.
type remembered[T any] struct {
	value T
	until time.Time
}

func newKeyring(s *store.Store) *keyring {
	known, _ := lru.New[[sha256.Size]byte, remembered[tenants.Credential]](mostKeys) // fails for sizes below 1 only
	return &keyring{store: s, known: known, unknown: newFloodgate(keyFloods)}
}

// find returns the credential of a key, or store.ErrNotFound when it is not valid. A key that has worked here before
// is looked up even during a flood of unknown keys.
func (k *keyring) find(ctx context.Context, from netip.Addr, key string) (tenants.Credential, error) {
	hash := sha256.Sum256([]byte(key))
	known, ok := k.known.Get(hash)
	switch {
	case ok && time.Now().Before(known.until):
		k.store.Tenants.KeyUsed(known.value.Key)
		return known.value, nil
	case !ok && !k.unknown.admits(from):
		return tenants.Credential{}, problem.New(problem.CodeRateLimited,
			"Too many unknown keys were sent from your address, or from all addresses; try again.").With("Retry-After", "1")
	}
	found, err, _ := k.looks.Do(string(hash[:]), func() (any, error) { return k.look(ctx, hash, key) })
	if err != nil {
		return tenants.Credential{}, err
	}
	c := found.(tenants.Credential)
	k.store.Tenants.KeyUsed(c.Key)
	return c, nil
}

// look asks the database, and remembers the answer about a valid key.
func (k *keyring) look(ctx context.Context, hash [sha256.Size]byte, key string) (tenants.Credential, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookupTimeout)
	defer cancel()
	until := time.Now().Add(Remembered)
	c, err := k.store.Tenants.Authenticate(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		k.known.Remove(hash)
		return c, err
	case err != nil:
		return c, err
	}
	if c.ExpiresIn > 0 {
		until = time.Now().Add(min(c.ExpiresIn, Remembered))
	}
	k.known.Add(hash, remembered[tenants.Credential]{c, until})
	return c, nil
}

// floodBounds are numbers per second, and of a burst after a while without any.
type floodBounds struct {
	ofAddress  timerate.Limit
	burst      int
	ofAll      timerate.Limit
	burstOfAll int
}

// floodgate bounds what strangers cost per second, for one address and for all.
type floodgate struct {
	bounds floodBounds
	all    *timerate.Limiter
	of     *lru.Cache[netip.Addr, *timerate.Limiter]
}

func newFloodgate(b floodBounds) *floodgate {
	of, _ := lru.New[netip.Addr, *timerate.Limiter](mostAddresses) // fails for sizes below 1 only
	return &floodgate{bounds: b, all: timerate.NewLimiter(b.ofAll, b.burstOfAll), of: of}
}

func (f *floodgate) admits(from netip.Addr) bool {
	if from.Is6() { // a client with one IPv6 address has a /64: 2⁶⁴ addresses
		network, _ := from.WithZone("").Prefix(64) // an IPv6 address has 128 bits, so this cannot fail
		from = network.Addr()
	}
	own := timerate.NewLimiter(f.bounds.ofAddress, f.bounds.burst)
	if known, ok, _ := f.of.PeekOrAdd(from, own); ok {
		f.of.Get(from) // marks it as used: addresses that come once must not evict it
		own = known
	}
	return own.Allow() && f.all.Allow()
}

// tenantBook remembers the tenants that were asked for lately.
type tenantBook struct {
	store *store.Store
	known *lru.Cache[string, remembered[tenants.Brief]]
	looks singleflight.Group
}

func newTenantBook(s *store.Store) *tenantBook {
	known, _ := lru.New[string, remembered[tenants.Brief]](mostTenants) // fails for sizes below 1 only
	return &tenantBook{store: s, known: known}
}

// find returns the tenant with a name, or store.ErrNotFound when there is none.
func (b *tenantBook) find(ctx context.Context, name string) (tenants.Brief, error) {
	if !jobspec.NameForm.MatchString(name) { // such as one with NUL, which the database cannot take
		return tenants.Brief{}, store.ErrNotFound
	}
	if known, ok := b.known.Get(name); ok && time.Now().Before(known.until) {
		return known.value, nil
	}
	found, err, _ := b.looks.Do(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LookupTimeout)
		defer cancel()
		until := time.Now().Add(Remembered)
		t, err := b.store.Tenants.FindTenant(ctx, name)
		if err == nil {
			b.known.Add(name, remembered[tenants.Brief]{t, until})
		}
		return t, err
	})
	return found.(tenants.Brief), err
}
