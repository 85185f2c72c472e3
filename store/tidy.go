package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

const (
	// forgetBatch is how many rows one transaction of a chore handles.
	forgetBatch = 1000
	// walkAgain is how long until rows that a walk has left are looked at again.
	walkAgain = 6 * time.Hour
)

// tidiness is what a replica remembers between two passes. Losing it costs only an unneeded look.
type tidiness struct {
	busy                      sync.Mutex // held during a pass; guards the other fields
	at                        time.Time  // tidied_at as this replica wrote it
	completed, purged, passed walk
}

// walk is how far a chore has come through rows in the order of an instant and an id. It goes on where it ended, so
// that rows that have to stay do not block those that may go. Now and then it starts again.
type walk struct {
	at    time.Time
	id    uuid.UUID
	again time.Time // by this machine's clock
}

// begin continues the walk, or starts it again when it is time.
func (w *walk) begin() {
	if now := time.Now(); now.After(w.again) {
		*w = walk{again: now.Add(walkAgain)}
	}
}

// tidyUp removes what is older than its retention, as fast as it accumulates, and computes next slots again after the
// time zone data has changed. Each minute one of all replicas does so. left is true if there is more to do at once.
func (s *Store) tidyUp(ctx context.Context) (left bool, err error) {
	ctx = pg.Chores.In(ctx)
	_, zones := s.Rezone(ctx)
	if mine, err := s.takeTidying(ctx); err != nil || !mine {
		return false, errors.Join(zones, err)
	}
	failed := []error{zones}
	for _, chore := range []func(context.Context) (int, bool, error){
		s.ForgetIdempotencyKeys, s.ForgetCompletedJobs, s.PurgeJobs, s.ForgetVersions, s.forgetLetters,
		s.forgetOperations, s.Audit.Forget,
	} {
		_, more, err := chore(ctx)
		left, failed = left || more, append(failed, err)
	}
	failed = append(failed, s.Days.Retire(ctx)) // last, because it may take minutes
	return left, errors.Join(failed...)
}

// takeTidying reports whether this replica is to tidy: it was the last to do so, or no replica has in the last minute.
func (s *Store) takeTidying(ctx context.Context) (mine bool, err error) {
	s.tidy.busy.Lock()
	defer s.tidy.busy.Unlock()
	err = s.db.Conns(ctx).QueryRow(ctx, `
		UPDATE punctual.deployment SET tidied_at = clock_timestamp()
		WHERE tidied_at < now() - interval '50 s' OR tidied_at = $1
		RETURNING tidied_at`,
		s.tidy.at).Scan(&s.tidy.at)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("beginning to tidy: %w", err)
	}
	return true, nil
}

// forgetOld deletes the rows of a table in which the column instant is older than age, oldest first. A deleted row
// stays in the column's index as long as an old snapshot sees it. So each batch starts behind the one before.
func (s *Store) forgetOld(
	ctx context.Context, table, instant string, key []string, age time.Duration,
) (int, bool, error) {
	same := make([]string, len(key))
	for i, column := range key {
		same[i] = fmt.Sprintf("d.%[1]s = old.%[1]s", column)
	}
	sql := fmt.Sprintf(`
		WITH old AS (
		    SELECT %[3]s, %[2]s FROM punctual.%[1]s
		    WHERE %[2]s < now() - $1::interval AND %[2]s >= $2
		    ORDER BY %[2]s LIMIT $3 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM punctual.%[1]s d USING old WHERE %[4]s RETURNING old.%[2]s)
		SELECT count(*), coalesce(max(%[2]s), $2) FROM gone`,
		table, instant, strings.Join(key, ", "), strings.Join(same, " AND "))
	var after time.Time
	n, left, err := pg.Repeat(ctx, forgetBatch, func(ctx context.Context) (found, gone int, err error) {
		var b pgx.Batch
		b.Queue(pg.ByIndex)
		b.Queue(sql, age, after, forgetBatch).QueryRow(func(row pgx.Row) error { return row.Scan(&gone, &after) })
		err = s.db.Conns(ctx).SendBatch(ctx, &b).Close()
		return gone, gone, err
	})
	if err != nil {
		return n, false, fmt.Errorf("removing old rows of %s: %w", table, err)
	}
	return n, left, nil
}

// ForgetIdempotencyKeys deletes keys older than 24 hours.
func (s *Store) ForgetIdempotencyKeys(ctx context.Context) (forgotten int, left bool, err error) {
	return s.forgetOld(ctx, "idempotency_keys", "created_at", []string{"tenant", "key"}, 24*time.Hour)
}

// forgetLetters deletes dead letters that were resolved before the failures' retention began.
func (s *Store) forgetLetters(ctx context.Context) (forgotten int, left bool, err error) {
	return s.forgetOld(ctx, "dead_letters", "resolved_at", []string{"run_id"}, s.options.FailureRetention)
}

// forgetOperations deletes operations that ended before the failures' retention began.
func (s *Store) forgetOperations(ctx context.Context) (forgotten int, left bool, err error) {
	return s.forgetOld(ctx, "operations", "finished_at", []string{"id"}, s.options.FailureRetention)
}
