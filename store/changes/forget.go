package changes

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// restart begins the feeds anew that another Postgres has put in order. That transaction ids are compared with those of
// another one would skip runs.
const restart = `
SELECT punctual.begin_changes(array_agg(tenant)) FROM punctual.change_feeds
WHERE system <> '' AND punctual.system_identifier() NOT IN ('', system)
HAVING count(*) > 0`

// removeOld removes the beginning of a feed: the rows before the first one that is to be kept. A row that a reader may
// not see yet is kept.
const removeOld = `
WITH first AS MATERIALIZED (
    SELECT c.feed, c.xid, c.id, c.recorded_at < now() - t.changes_kept AS old
    FROM punctual.change_feeds f
    JOIN punctual.tenants t ON t.id = f.tenant
    CROSS JOIN LATERAL (
        SELECT c.* FROM punctual.changes c
        WHERE c.feed = f.id AND (c.xid, c.id) > (f.gone_xid, f.gone_id)
          AND c.xid < pg_snapshot_xmin(pg_current_snapshot())
        ORDER BY c.xid, c.id LIMIT $2) c
    WHERE f.id = $1),
beginning AS MATERIALIZED (
    SELECT f.* FROM first f
    WHERE f.old AND NOT EXISTS (SELECT FROM first o WHERE NOT o.old AND (o.xid, o.id) < (f.xid, f.id))),
gone AS (
    DELETE FROM punctual.changes c USING beginning b WHERE c.feed = b.feed AND c.xid = b.xid AND c.id = b.id),
marked AS (
    UPDATE punctual.change_feeds f SET gone_xid = b.xid, gone_id = b.id
    FROM (SELECT * FROM beginning ORDER BY xid DESC, id DESC LIMIT 1) b
    WHERE f.id = b.feed)
SELECT count(*) FROM beginning`

// removeOrphans removes rows of a feed that has ended.
const removeOrphans = `
WITH gone AS (
    DELETE FROM punctual.changes c
    USING (SELECT feed, xid, id FROM punctual.changes WHERE feed = $1 ORDER BY feed, xid, id LIMIT $2) o
    WHERE c.feed = o.feed AND c.xid = o.xid AND c.id = o.id
      AND NOT EXISTS (SELECT FROM punctual.change_feeds f WHERE f.id = $1)
    RETURNING 1)
SELECT count(*) FROM gone`

// selectFeeds selects the feeds that have rows, and whether each continues.
const selectFeeds = `
WITH RECURSIVE feeds AS (
    (SELECT feed FROM punctual.changes ORDER BY feed LIMIT 1)
    UNION ALL
    SELECT (SELECT c.feed FROM punctual.changes c WHERE c.feed > f.feed ORDER BY c.feed LIMIT 1)
    FROM feeds f WHERE f.feed IS NOT NULL)
SELECT feed, EXISTS (SELECT FROM punctual.change_feeds c WHERE c.id = f.feed) FROM feeds f WHERE feed IS NOT NULL`

// endRecords removes the triggers when no feed is left.
const endRecords = `
SELECT punctual.end_changes()
WHERE NOT EXISTS (SELECT FROM punctual.change_feeds) AND EXISTS (SELECT FROM punctual.recorded_tables())`

// Forget removes changes that are older than their tenants want them kept, and those of feeds that have ended. It
// starts feeds again whose database is a copy.
func (s *Changes) Forget(ctx context.Context) (forgotten int, left bool, err error) {
	conns := s.db.Chores
	failed := []error{pg.Exec(ctx, conns, restart)}
	feeds, err := pg.Map[uuid.UUID, bool](ctx, conns, selectFeeds)
	failed = append(failed, err)
	for feed, goesOn := range feeds {
		sql := removeOrphans
		if goesOn {
			sql = removeOld
		}
		n, more, err := pg.Repeat(ctx, pg.ForgetBatch, func(ctx context.Context) (found, gone int, err error) {
			var b pgx.Batch
			b.Queue(pg.ByIndex)
			b.Queue(sql, feed, pg.ForgetBatch).QueryRow(pg.IntoPlaces(&gone))
			err = conns.SendBatch(ctx, &b).Close()
			return gone, gone, err
		})
		forgotten, left, failed = forgotten+n, left || more, append(failed, err)
	}
	failed = append(failed, pg.Exec(ctx, conns, endRecords))
	return forgotten, left, pg.Wrap("removing old changes", errors.Join(failed...))
}
