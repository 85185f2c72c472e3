package store

import (
	"context"
	"time"

	"punctual/scheduler"
	"punctual/store/claim"
	"punctual/store/jobs"
)

// The names of the chores for which a heartbeat asks.
const (
	choreSilent     = "silent-targets"
	chorePauses     = "pauses"
	choreOperations = "operations"
	choreNotices    = "notices"
	choreGates      = "gates"
)

// choresDue lists, for a heartbeat, the chores for which there is work now or in the next two seconds. So an idle
// replica sends no other query for them.
const choresDue = `
array_remove(ARRAY[
    CASE WHEN ` + claim.AnySilent + ` THEN '` + choreSilent + `' END,
    CASE WHEN ` + jobs.AnyPauseOver + ` THEN '` + chorePauses + `' END,
    CASE WHEN EXISTS (SELECT FROM punctual.operations WHERE state = 'running') THEN '` + choreOperations + `' END,
    CASE WHEN EXISTS (SELECT FROM punctual.notices WHERE tell_at <= now())
           OR EXISTS (SELECT FROM punctual.notified WHERE look_at <= now()) THEN '` + choreNotices + `' END,
    CASE WHEN EXISTS (` + claim.Unheld + `) THEN '` + scheduler.ChoreHolds + `' END,
    CASE WHEN (SELECT job_id FROM punctual.exclusive WHERE earlier_runs IS NOT NULL ORDER BY job_id LIMIT 1) IS NOT NULL
         THEN '` + choreGates + `' END], NULL)`

// Chores returns what every replica does beside its claims.
func (s *Store) Chores() []scheduler.Chore {
	return []scheduler.Chore{
		{Name: choreSilent, Does: "ending attempts whose targets are silent", Batch: s.EndSilent},
		{Name: chorePauses, Does: "ending pauses", Batch: s.EndDuePauses},
		{Name: choreOperations, Does: "work on operations", Batch: s.Operate},
		{Name: choreNotices, Does: "creating notices of jobs", Batch: atOnce(s.Notify)},
		{Name: choreGates, Does: "freeing the gates of jobs", Batch: atOnce(s.FreeGates)},
		{Name: "maintenance", Does: "maintenance", Every: time.Minute, Batch: atOnce(s.maintain)},
		{Name: "hours", Does: "counting the runs of hours", Every: time.Minute, Batch: s.CountHours},
		{Name: "tidying", Does: "removing data past its retention", Every: time.Minute, Batch: atOnce(s.tidyUp)},
	}
}

// atOnce is a batch of work whose next batch waits for nothing.
func atOnce(batch func(context.Context) (left bool, err error)) func(context.Context) (time.Duration, bool, error) {
	return func(ctx context.Context) (time.Duration, bool, error) {
		left, err := batch(ctx)
		return 0, left, err
	}
}
