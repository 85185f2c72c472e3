package days

import (
	"context"
	"time"
)

const (
	// locksOfDay is how many locks a statement over the whole history holds for each day: on the partition of runs, and
	// on its nine indexes.
	locksOfDay = 10
	// locksOfSession is half of what a session of a replica holds at most in nearly all of its work. Postgres has room for
	// two holders of each lock, and all sessions lock the same few days.
	locksOfSession = 50
	// warnWithin bounds how long the warning may hold up the start, such as while a stranger has locked the replicas.
	warnWithin = time.Second
)

// WarnOfLocks logs a warning if the lock table of Postgres may be too small: for a statement over all the days that are
// kept, such as that of verify, while replicas with this many connections each are busy. The table belongs to the whole
// cluster. When it is full, statements of other applications fail as well.
func (d *Days) WarnOfLocks(ctx context.Context, connections int) {
	ctx, cancel := context.WithTimeout(ctx, warnWithin)
	defer cancel()
	var most, sessions, replicas int
	if err := d.db.Callers.QueryRow(ctx, `
		SELECT current_setting('max_locks_per_transaction')::integer,
		       current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer,
		       1 + (SELECT count(*) FROM punctual.replicas)`).Scan(&most, &sessions, &replicas); err != nil {
		d.log.Info("the size of the lock table is not known", "error", err)
		return
	}
	kept := int(max(d.retention, d.failureRetention).Hours()/24) + MadeAhead + 1
	needed := kept*locksOfDay + replicas*connections*locksOfSession
	if room := most * sessions; needed > room {
		d.log.Warn("a statement over all days of runs, such as that of verify, may find too little room in the lock table "+
			"of Postgres, and then others fail as well; raise max_locks_per_transaction, or keep runs for fewer days",
			"max_locks_per_transaction", most, "raise_it_to", (needed+sessions-1)/sessions, "days", kept,
			"locks_needed", needed, "locks_in_all", room)
	}
}
