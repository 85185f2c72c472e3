package dashboard

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"sync"
	"time"

	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
)

const (
	// renewEarly is how long before its end a token is renewed, so that it does not end on the way.
	renewEarly = 30 * time.Second
	// renewalKept is how long a renewal answers further requests that bring the old token. It is longer than a renewal
	// may take, and than the requests of one page are apart.
	renewalKept = 30 * time.Second
)

// errEnded says that a session has ended: its token has, and the issuer does not renew it.
var errEnded = errors.New("the session has ended")

// renewed returns a session whose token is good for a while yet. If it got a new token, the browser keeps that.
func (v *visit) renewed(s session) (session, error) {
	if s.Refresh == "" || v.SignIn == nil || time.Until(s.Expires) > renewEarly {
		return s, nil
	}
	fresh, err := v.renewals.of(s.Credential, func() (session, error) {
		// Others wait for it too, so it does not end with this visit.
		lasting := &visit{Pages: v.Pages, w: v.w, r: v.r.WithContext(context.WithoutCancel(v.ctx()))}
		grant, err := v.SignIn.Renew(lasting.ctx(), s.Refresh, s.Credential)
		if err != nil {
			return session{}, err
		}
		return lasting.accepted(grant)
	})
	if err == nil {
		fresh.Tenant, fresh.Until = s.Tenant, s.Until
		if err = v.remember(fresh); err == nil {
			return fresh, nil
		}
	}
	_, refused := errors.AsType[*auth.RefusedError](err)
	switch {
	case time.Now().Before(s.Expires): // another replica may have renewed it, or the issuer is away for a moment
		return s, nil
	case refused, errors.Is(err, errNoToken), client.Is(err, problem.CodeUnauthenticated):
		// The cookie stays: if another replica has renewed the session, the browser may have its cookie already.
		return s, errEnded
	}
	return s, err
}

// renewals makes one renewal of requests that come at once with the same token, as those of one page do. Most issuers
// take a refresh token once, and some end the session when it comes again.
type renewals struct {
	mu     sync.Mutex
	recent map[[sha256.Size]byte]*renewal // by the token that is replaced
}

type renewal struct {
	begun  time.Time
	result func() (session, error)
}

// of returns the session that replaces a token.
func (n *renewals) of(token string, renew func() (session, error)) (session, error) {
	hash := sha256.Sum256([]byte(token))
	n.mu.Lock()
	now := time.Now()
	maps.DeleteFunc(n.recent, func(_ [sha256.Size]byte, r *renewal) bool { return now.Sub(r.begun) > renewalKept })
	if n.recent == nil {
		n.recent = map[[sha256.Size]byte]*renewal{}
	}
	r := n.recent[hash]
	if r == nil {
		r = &renewal{now, sync.OnceValues(renew)}
		n.recent[hash] = r
	}
	n.mu.Unlock()
	s, err := r.result()
	// Unless it has refused, the issuer may be back with the next request.
	if _, refused := errors.AsType[*auth.RefusedError](err); err != nil && !refused {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.recent[hash] == r {
			delete(n.recent, hash)
		}
	}
	return s, err
}
