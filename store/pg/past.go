package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Reading is what a request asks of its reads of the past, and what it learns of them. Reads of the past may go to the
// standby only if their context has one, because whoever gets their answer must be told of which instant it is. Safe
// for concurrent use.
type Reading struct {
	Since Position        // what the reads have to see; empty: nothing in particular
	Told  func(time.Time) // called with the instant as of which all was read so far, whenever it changes; may be nil

	mu   sync.Mutex
	asOf time.Time
	home bool // a read was answered by the primary, and so are those that follow: they may be about what it has read
}

type readingKey struct{}

// Within returns a context whose reads of the past are parts of the reading.
func (r *Reading) Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, r)
}

// ReadingOf returns the reading of a context; nil: it has none.
func ReadingOf(ctx context.Context) *Reading {
	r, _ := ctx.Value(readingKey{}).(*Reading)
	return r
}

// AsOf returns the instant as of which all was read so far; zero: nothing was.
func (r *Reading) AsOf() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asOf
}

// AtHome reports whether a read was answered by the primary.
func (r *Reading) AtHome() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.home
}

// since returns what the next read has to see.
func (r *Reading) since() Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Since
}

// note records a read as of an instant. seen is where the standby was; empty: the primary answered.
func (r *Reading) note(asOf time.Time, seen Position) {
	r.mu.Lock()
	if seen == "" {
		r.home = true
	} else {
		r.Since = seen // no read goes back in time
	}
	r.mu.Unlock()
	r.Tell(asOf)
}

// Tell adds what another reading has read, as of an instant.
func (r *Reading) Tell(asOf time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asOf.IsZero() && !asOf.Before(r.asOf) {
		return
	}
	if r.asOf = asOf.UTC(); r.Told != nil {
		r.Told(r.asOf)
	}
}

// Source is where a read of the past goes. As a Querier it reads for the tenant.
type Source struct {
	Querier
	All     Querier // reads for all tenants
	Standby bool
}

// Source returns the primary, as a source of reads for a tenant.
func (p *Pool) Source(tenant int32) Source { return Source{Querier: p.Reader(tenant), All: p} }

// ErrUnfinal says that the standby cannot answer, as what is asked for is not final there. The primary may know more.
var ErrUnfinal = errors.New("not final at the standby")

// conns is a pool, or one of its connections.
type conns interface {
	Querier
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Past reads, for a tenant, what is final. It is the one door to the standby, with PastSnapshot. The standby answers if
// the database has one, the context has a Reading, and the standby has what that has to see. In all other cases the
// primary answers, also if read fails at the standby. So read may be called several times, and what it returns depends
// on no call before.
func Past[T any](
	ctx context.Context, p *Pool, tenant int32, read func(context.Context, Source) (T, error),
) (T, error) {
	return past(ctx, p, func(ctx context.Context, c conns, standby bool) (T, error) {
		return read(ctx, Source{Querier: p.readerOn(c, tenant), All: c, Standby: standby})
	})
}

// Snapshot is one snapshot of the database or its standby.
type Snapshot struct {
	pgx.Tx
	Standby bool
}

// PastSnapshot is Past on one snapshot: see Pool.ReadOnly.
func PastSnapshot[T any](
	ctx context.Context, p *Pool, tenant int32, read func(context.Context, Snapshot) (T, error),
) (T, error) {
	return past(ctx, p, func(ctx context.Context, c conns, standby bool) (value T, err error) {
		err = p.readOnlyOn(ctx, c, tenant, func(tx pgx.Tx) (err error) {
			value, err = read(ctx, Snapshot{tx, standby})
			return err
		})
		return value, err
	})
}

func past[T any](
	ctx context.Context, p *Pool, read func(ctx context.Context, c conns, standby bool) (T, error),
) (value T, err error) {
	r := ReadingOf(ctx)
	standby := p.db.standby
	if standby == nil || r == nil {
		return read(ctx, p, false)
	}
	if !r.AtHome() {
		var seen seen
		seen, err = standby.answer(ctx, p, r.since(), func(ctx context.Context, c conns) (err error) {
			value, err = read(ctx, c, true)
			return err
		})
		if err == nil {
			r.note(seen.asOf, seen.at)
			return value, nil
		}
	}
	asOf := standby.now()
	value, err = read(ctx, p, false)
	r.note(asOf, "")
	return value, err
}

// Now is an SQL expression: now. At a standby it is the instant up to which the standby has replayed.
const Now = `CASE
	WHEN pg_is_in_recovery() THEN least(now(), coalesce(pg_last_xact_replay_timestamp(), now()))
	ELSE now() END`
