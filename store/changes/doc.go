// Package changes keeps a feed, for each tenant that wants one, of the runs that have ended, in an order in which a
// reader misses none. It owns the tables change_feeds and changes.
//
// A trigger of runs writes a row for each statement that has ended some, because runs end in a dozen statements. The
// trigger exists only while some tenant has a feed: others pay nothing. A row has the id of its transaction, and is
// read once no transaction with a lower id is open. So whatever commits later comes later in the feed. A transaction
// that stays open holds up the feed, and loses nothing of it.
//
// A cursor names a row, not only a position: if a failover or a restored backup has lost that row, the cursor is
// refused. The rows of a feed are removed from its beginning (Forget), and a cursor that points before the rest is
// refused. The ids of transactions belong to one Postgres. So a feed starts again when its database was copied to
// another one.
package changes

import (
	"context"

	"punctual/store/pg"
)

// Changes are the feeds of a deployment. Safe for concurrent use.
type Changes struct{ db *pg.DB }

// New returns the feeds of a database.
func New(db *pg.DB) *Changes { return &Changes{db} }

// Begin begins the feed of a tenant. Until the transaction ends, no run can be written: end it at once.
func Begin(ctx context.Context, tx *pg.Tx, tenant int32) error {
	return pg.Wrap("beginning to record changes",
		pg.Exec(ctx, tx, `SELECT punctual.begin_changes(ARRAY[$1::int])`, tenant))
}

// End ends the feed of a tenant. Forget removes what it had.
func End(ctx context.Context, tx *pg.Tx, tenant int32) error {
	return pg.Wrap("ending the record of changes",
		pg.Exec(ctx, tx, `DELETE FROM punctual.change_feeds WHERE tenant = $1`, tenant))
}
