package store

import (
	"context"
	"time"

	"punctual/store/jobs"
	"punctual/store/overview"
	"punctual/store/pg"
)

// kept says how long the rows of a table are kept after an instant that stands in them.
type kept struct {
	instant string
	key     []string
	age     time.Duration
}

// kept are the tables whose old rows go for no other reason than their age.
func (s *Store) kept() map[string]kept {
	failures := s.Options.FailureRetention // what is older explains no run that is kept
	return map[string]kept{
		"idempotency_keys": {"created_at", []string{"tenant", "key"}, 24 * time.Hour},
		"dated_sequences":  {"left_at", []string{"job_id", "key"}, jobs.SequencesKept},
		"set_aside":        {"retry_at", []string{"kind", "item"}, time.Hour}, // nobody tries it any more
		"dead_letters":     {"resolved_at", []string{"run_id"}, failures},
		"operations":       {"finished_at", []string{"id"}, failures},
		"reports":          {"reported_at", []string{"run_id"}, failures},
		"service_periods":  {"until", []string{"queue", "since"}, failures},
		"replicas_seen":    {"seen_at", []string{"id"}, failures},
		"counted_hours":    {"hour", []string{"hour"}, overview.HoursKept},
		"hourly_runs":      {"hour", []string{"hour", "tenant", "round"}, overview.HoursKept},
		"counted_days":     {"day", []string{"day"}, overview.UsageKept},
		"daily_usage":      {"day", []string{"tenant", "id"}, overview.UsageKept},
	}
}

// ForgetOld deletes old rows of one of the tables of kept, as [pg.ForgetOld] does.
func (s *Store) ForgetOld(ctx context.Context, table string) (forgotten int, left bool, err error) {
	k := s.kept()[table]
	return pg.ForgetOld(ctx, s.DB.Chores, table, k.instant, k.key, k.age)
}
