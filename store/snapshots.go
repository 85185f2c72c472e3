package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// selectSnapshots selects what keeps Postgres from removing old rows, and its age in seconds as far as the role may see
// it. The ids of transactions are shown to every role, and the ages only for its own sessions and to pg_monitor.
// A writing transaction of any database holds up the feed of changes. Vacuum ignores its own workers.
const selectSnapshots = `
SELECT concat_ws(' ', 'session', pid, coalesce(backend_xid, backend_xmin)),
       extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_catalog.pg_stat_activity
WHERE (backend_xid IS NOT NULL
       OR backend_xmin IS NOT NULL AND coalesce(datname, current_database()) = current_database())
  AND pid <> pg_backend_pid() AND backend_type IS DISTINCT FROM 'autovacuum worker'
UNION ALL
SELECT concat_ws(' ', 'prepared', gid), extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_catalog.pg_prepared_xacts
UNION ALL
SELECT concat_ws(' ', 'slot', slot_name, xmin), NULL
FROM pg_catalog.pg_replication_slots
WHERE xmin IS NOT NULL`

// snapshots remember since when each snapshot was seen, for those whose age the role may not see.
type snapshots struct {
	mu   sync.Mutex
	seen map[string]time.Time
}

type snapshot struct {
	Name string
	Age  *float64
}

// oldest returns the age of the oldest of the snapshots that there are now; 0: there is none.
func (s *snapshots) oldest(all []snapshot, now time.Time) (age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]time.Time{}
	for _, one := range all {
		first, known := s.seen[one.Name]
		if !known {
			first = now
		}
		seen[one.Name] = first
		own := now.Sub(first)
		if one.Age != nil {
			own = time.Duration(*one.Age * float64(time.Second))
		}
		age = max(age, own)
	}
	s.seen = seen
	return age
}

// OldestSnapshot returns how long the oldest transaction, prepared transaction or replication slot has kept Postgres
// from removing old rows of this database.
func (s *Store) OldestSnapshot(ctx context.Context) (time.Duration, error) {
	all, err := pg.All(ctx, s.DB.Chores, pgx.RowToStructByPos[snapshot], selectSnapshots)
	if err != nil {
		return 0, pg.Wrap("reading what keeps old rows", err)
	}
	return s.snapshots.oldest(all, time.Now()), nil
}
