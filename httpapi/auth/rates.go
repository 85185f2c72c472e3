package auth

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/httpapi/problem"
	"punctual/store"
	"punctual/store/tenants"
)

// rates enforces max_requests_per_second of tenants. A replica draws a tenth of a second's worth of requests at a
// time from the database, which all replicas share, and serves requests from that.
type rates struct {
	store *store.Store
	of    *lru.Cache[int32, *allowance]
}

func newRates(s *store.Store) *rates {
	of, _ := lru.New[int32, *allowance](mostTenants) // fails for sizes below 1 only
	return &rates{store: s, of: of}
}

// drawnFor is how long drawn requests stay valid. An idle replica loses the rest.
const drawnFor = time.Second

// allowance holds the requests that this replica has drawn for a tenant.
type allowance struct {
	turn  chan struct{} // held while a request uses the fields below; others wait
	rate  int
	drawn int
	until time.Time // when the drawn requests expire
	none  time.Time // until then there is nothing to draw
	left  tenants.Requests
}

// spend counts a request of a tenant, and writes how many remain into the header. It returns a *Problem when none
// remain. While the database does not answer, it refuses no request.
func (r *rates) spend(ctx context.Context, t tenants.Brief, header http.Header) error {
	if t.MaxRequestsPerSecond == 0 {
		return nil
	}
	a := &allowance{turn: make(chan struct{}, 1)}
	if known, ok, _ := r.of.PeekOrAdd(t.ID, a); ok {
		a = known
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if a.rate != t.MaxRequestsPerSecond {
		a.rate, a.drawn, a.none = t.MaxRequestsPerSecond, 0, time.Time{}
	}
	now := time.Now()
	if a.drawn == 0 || now.After(a.until) {
		if err := r.draw(ctx, t, a, now); err != nil {
			return nil // not refused here: it gets its own answer without a database
		}
	}
	if a.drawn == 0 {
		return a.refusal()
	}
	a.drawn--
	a.tell(header)
	return nil
}

// draw asks the database for requests, unless it is known to have none.
func (r *rates) draw(ctx context.Context, t tenants.Brief, a *allowance, now time.Time) error {
	a.drawn = 0
	if now.Before(a.none) {
		return nil
	}
	want := max(1, a.rate/10)
	left, err := r.store.Tenants.DrawRequests(ctx, t.ID, a.rate, want)
	if err != nil {
		return err
	}
	a.left, a.drawn, a.until = left, left.Granted, now.Add(drawnFor)
	if a.drawn == 0 {
		a.none = now.Add(time.Duration(want) * time.Second / time.Duration(a.rate))
	}
	return nil
}

func (a *allowance) tell(header http.Header) {
	header.Set("RateLimit-Limit", strconv.Itoa(a.rate))
	header.Set("RateLimit-Remaining", strconv.Itoa(a.drawn+a.left.Remaining))
	header.Set("RateLimit-Reset", strconv.Itoa(int(math.Ceil(a.left.Full.Seconds()))))
}

func (a *allowance) refusal() *problem.Problem {
	p := problem.New(problem.CodeRateLimited,
		"Your tenant may send "+problem.Count(a.rate, "request", "requests")+" a second, on all replicas together.").
		With("Retry-After", "1")
	a.tell(p.Header)
	return p
}
