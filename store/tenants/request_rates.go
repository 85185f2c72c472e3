package tenants

import (
	"context"
	"fmt"
	"time"

	"punctual/store/pg"
)

// Requests is what a replica has drawn from a tenant's requests per second.
type Requests struct {
	Granted   int
	Remaining int           // how many were left for other replicas then
	Full      time.Duration // how long until a full second's worth is available again
}

// DrawRequests takes up to want of a tenant's rate, which is in requests per second and for all replicas together. It
// is the generic cell rate algorithm with a bucket of one second's worth. It grants none if none is left.
func (s *Tenants) DrawRequests(ctx context.Context, tenant int32, rate, want int) (Requests, error) {
	var r Requests
	var until time.Duration
	err := s.db.Callers.QueryRow(ctx, `
		INSERT INTO punctual.request_rates AS r (tenant, spent_until, granted)
		VALUES ($1, now() + $3 * interval '1 second' / $2::float8, $3::integer)
		ON CONFLICT (tenant) DO UPDATE SET
			granted = least($3::integer, `+leftOfRate+`),
			spent_until = `+spentUntil+` + least($3::integer, `+leftOfRate+`) * interval '1 second' / $2::float8
		WHERE `+leftOfRate+` >= 1
		RETURNING granted, spent_until - now()`, pg.Prepared{}, tenant, float64(rate), want).Scan(&r.Granted, &until)
	if some, err := pg.Some(err); !some {
		return Requests{Full: time.Second}, pg.Wrap(fmt.Sprintf("drawing requests of tenant %d", tenant), err)
	}
	r.Full = min(until, time.Second)
	r.Remaining = max(0, int((time.Second-until).Seconds()*float64(rate)))
	return r, nil
}

// spentUntil is the instant until which a rate is spent. It is never more than a second ahead, give or take a wait for
// the row's lock. A value further ahead comes from a clock that was set back since; then it counts as now, so that no
// request is refused until the clock has caught up.
const spentUntil = `CASE
	WHEN r.spent_until > now() + interval '10 seconds' THEN now()
	ELSE greatest(r.spent_until, now()) END`

// leftOfRate is how many requests are left.
const leftOfRate = `greatest(0, floor(
	extract(epoch FROM now() + interval '1 second' - ` + spentUntil + `)::float8 * $2::float8 + 0.001))::integer`
