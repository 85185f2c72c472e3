package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// tidying is which replica tidies.
type tidying struct {
	busy sync.Mutex
	at   time.Time // tidied_at as this replica wrote it
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
		s.ForgetIdempotencyKeys, s.ForgetCompletedJobs, s.PurgeJobs, s.ForgetVersions, s.ForgetDeadLetters,
		s.ForgetOperations, s.ForgetHours, s.Audit.Forget,
	} {
		_, more, err := chore(ctx)
		left, failed = left || more, append(failed, err)
	}
	failed = append(failed, s.Days.Retire(ctx)) // last, because it may take minutes
	return left, errors.Join(failed...)
}

// takeTidying reports whether this replica is to tidy: it was the last to do so, or no replica has in the last minute.
func (s *Store) takeTidying(ctx context.Context) (mine bool, err error) {
	s.tidying.busy.Lock()
	defer s.tidying.busy.Unlock()
	err = s.db.Conns(ctx).QueryRow(ctx, `
		UPDATE punctual.deployment SET tidied_at = clock_timestamp()
		WHERE tidied_at < now() - interval '50 s' OR tidied_at = $1
		RETURNING tidied_at`,
		s.tidying.at).Scan(&s.tidying.at)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("beginning to tidy: %w", err)
	}
	return true, nil
}

// ForgetIdempotencyKeys deletes keys older than 24 hours.
func (s *Store) ForgetIdempotencyKeys(ctx context.Context) (forgotten int, left bool, err error) {
	return pg.ForgetOld(ctx, s.db, "idempotency_keys", "created_at", []string{"tenant", "key"}, 24*time.Hour)
}
