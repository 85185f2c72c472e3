package changes

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Page is a part of a feed.
type Page struct {
	Runs []uuid.UUID // in the order of the feed; a run may be in it again
	Next string      // the cursor of what follows, now or later
	More bool        // whether something follows now
	// Lag is how long ago the next change was recorded; 0: there is none. If nothing follows now, a transaction that is
	// older holds it up.
	Lag   time.Duration
	Since time.Time // the feed has the runs whose end was committed later, except what was removed
}

// readPage reads in one snapshot whether the cursor is good and what follows. The inner limit counts rows: each has a
// run or more, except that the row of the cursor may have none left.
const readPage = `
WITH feed AS (SELECT * FROM punctual.change_feeds WHERE tenant = $1),
page AS (
    SELECT c.xid, c.id, c.recorded_at, u.run, u.n::int AS n, u.n = cardinality(c.runs) AS last
    FROM (SELECT c.* FROM punctual.changes c
          WHERE c.feed = (SELECT id FROM feed) AND (c.xid, c.id) >= ($2::bigint::text::xid8, $3::bigint)
            AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
          ORDER BY c.xid, c.id LIMIT $6 + 2) c
    CROSS JOIN LATERAL unnest(c.runs) WITH ORDINALITY u(run, n)
    WHERE (c.xid, c.id) > ($2::bigint::text::xid8, $3::bigint) OR u.n > $4
    ORDER BY c.xid, c.id, u.n LIMIT $6 + 1)
SELECT f.id, f.since, f.gone_xid::text::bigint, f.gone_id,
       f.system <> '' AND punctual.system_identifier() NOT IN ('', f.system),
       EXISTS (SELECT FROM punctual.changes c WHERE c.feed = f.id AND c.xid = $2::bigint::text::xid8 AND c.id = $3
                                                AND c.recorded_at = $5),
       coalesce(extract(epoch FROM clock_timestamp() - (
           SELECT c.recorded_at FROM punctual.changes c
           WHERE c.feed = f.id AND c.xid >= pg_snapshot_xmin(pg_current_snapshot())
           ORDER BY c.xid, c.id LIMIT 1)), 0)::float8,
       p.xid::text::bigint, p.id, p.run, p.n, p.last, p.recorded_at,
       extract(epoch FROM clock_timestamp() - p.recorded_at)::float8
FROM feed f
LEFT JOIN page p ON true
ORDER BY p.xid, p.id, p.n`

// feedRow is a row of readPage.
type feedRow struct {
	Feed    uuid.UUID
	Since   time.Time
	GoneXID int64
	GoneID  int64
	Copied  bool
	Known   bool // there is the row that the cursor names
	Held    float64

	XID        *int64 // nil: nothing follows
	ID         *int64
	Run        *uuid.UUID
	N          *int32
	Last       *bool
	RecordedAt *time.Time
	Age        *float64
}

// Read returns what follows a cursor in a tenant's feed; after an empty one, the oldest that is kept. A cursor from
// which the feed cannot continue is refused with CodeCursorGone.
func (s *Changes) Read(ctx context.Context, tenant int32, after string, limit int) (Page, error) {
	var from position
	if after != "" {
		var err error
		if from, err = parse(after); err != nil {
			return Page{}, err
		}
	}
	rows, err := pg.All(ctx, s.db.Callers.Reader(tenant), pgx.RowToStructByPos[feedRow], readPage,
		tenant, from.XID, from.ID, from.Run, time.UnixMicro(from.Micros), limit)
	switch {
	case err != nil:
		return Page{}, fmt.Errorf("reading changes: %w", err)
	case len(rows) == 0:
		return Page{}, fmt.Errorf("no changes are recorded, because the tenant has no changes_kept: %w", pg.ErrState)
	case rows[0].Copied:
		return Page{}, fmt.Errorf("this database is a copy of another, and the feed starts again within minutes: %w",
			pg.ErrState)
	case after == "":
		from = position{Feed: rows[0].Feed, XID: rows[0].GoneXID, ID: rows[0].GoneID, Run: whole}
	default:
		if err := rows[0].check(from); err != nil {
			return Page{}, err
		}
	}
	return pageOf(rows, from, limit), nil
}

// check refuses a cursor from which the feed cannot continue.
func (r *feedRow) check(from position) error {
	switch {
	case from.Feed != r.Feed:
		return gone("the cursor is of another feed: this one began at " + r.Since.UTC().Format(time.RFC3339))
	case from.before(r.GoneXID, r.GoneID):
		return gone("changes after the cursor were removed, because they are older than the tenant's changes_kept")
	case !r.Known && (from.XID != r.GoneXID || from.ID != r.GoneID):
		return gone("the cursor is ahead of the database, which has lost changes since: a backup was restored, or a " +
			"standby without them was promoted")
	}
	return nil
}

func pageOf(rows []feedRow, from position, limit int) Page {
	p := Page{Since: rows[0].Since, Lag: seconds(rows[0].Held)}
	for i, r := range rows {
		if r.XID == nil {
			break
		}
		if i == limit {
			p.More, p.Lag = true, seconds(*r.Age)
			break
		}
		p.Runs = append(p.Runs, *r.Run)
		from = position{Feed: r.Feed, XID: *r.XID, ID: *r.ID, Run: *r.N, Micros: r.RecordedAt.UnixMicro()}
		if *r.Last {
			from.Run = whole
		}
	}
	p.Next = from.String()
	return p
}

func seconds(n float64) time.Duration { return time.Duration(max(n, 0) * float64(time.Second)) }
