package overview

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// tally is what became of the runs of one tenant in one hour.
type tally struct {
	runs.Outcomes
	lateness histogram
}

// add counts n runs. class is how late they were sent; nil: they have no lateness.
func (t *tally) add(became domain.Status, class *int, n int32) {
	t.Add(became, int64(n))
	if class != nil {
		t.lateness.add(*class, n)
	}
}

// merge adds another tally.
func (t *tally) merge(other tally) {
	t.Succeeded += other.Succeeded
	t.Dead += other.Dead
	t.Cancelled += other.Cancelled
	t.Skipped += other.Skipped
	t.Unended += other.Unended
	t.lateness.merge(other.lateness)
}

// into returns where to scan tallyColumns.
func (t *tally) into() []any {
	return []any{&t.Succeeded, &t.Dead, &t.Cancelled, &t.Skipped, &t.Unended, (*[]int32)(&t.lateness)}
}

const tallyColumns = `r.succeeded, r.dead, r.cancelled, r.skipped, r.unended, r.lateness`

// tallies are the tallies of one hour, by tenant.
type tallies map[int32]*tally

// of returns the tally of a tenant.
func (s tallies) of(tenant int32) *tally {
	if s[tenant] == nil {
		s[tenant] = &tally{}
	}
	return s[tenant]
}

// addWritten adds what the round has written so far for these tenants.
func (s tallies) addWritten(ctx context.Context, tx *pg.Tx, begin time.Time, round int32) error {
	tenants := slices.Collect(maps.Keys(s))
	rows := pg.Query(ctx, tx, `
		SELECT r.tenant, `+tallyColumns+`
		FROM unnest((SELECT $3::integer[])) w(tenant)
		JOIN punctual.hourly_runs r ON r.hour = $1 AND r.tenant = w.tenant AND r.round = $2`, begin, round, tenants)
	var tenant int32
	var written tally
	_, err := pgx.ForEachRow(rows, append([]any{&tenant}, written.into()...), func() error {
		s[tenant].merge(written)
		written = tally{}
		return nil
	})
	return err
}

// queueWrite queues the statement that writes the tallies of a round, in place of what was written before.
func (s tallies) queueWrite(b *pgx.Batch, begin time.Time, round int32) {
	if len(s) == 0 {
		return
	}
	var tenants []int32
	var figures [5][]int64
	var lateness []string
	for tenant, t := range s {
		tenants, lateness = append(tenants, tenant), append(lateness, t.lateness.array())
		for i, n := range []int64{t.Succeeded, t.Dead, t.Cancelled, t.Skipped, t.Unended} {
			figures[i] = append(figures[i], n)
		}
	}
	b.Queue(`
		INSERT INTO punctual.hourly_runs AS r (
		    hour, round, tenant, succeeded, dead, cancelled, skipped, unended, lateness)
		SELECT $1, $2, u.tenant, u.succeeded, u.dead, u.cancelled, u.skipped, u.unended, u.lateness::integer[]
		FROM unnest($3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[], $8::integer[], $9::text[])
		     AS u(tenant, succeeded, dead, cancelled, skipped, unended, lateness)
		ON CONFLICT (hour, tenant, round) DO UPDATE
		SET succeeded = excluded.succeeded, dead = excluded.dead, cancelled = excluded.cancelled,
		    skipped = excluded.skipped, unended = excluded.unended, lateness = excluded.lateness`,
		begin, round, tenants, figures[0], figures[1], figures[2], figures[3], figures[4], lateness)
}

// HoursKept is how long counted hours are kept.
const HoursKept = 8 * 24 * time.Hour
