package jobs

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
	"punctual/store/runs"
)

// fillRuns gives each job its newest run or skip, and its recent runs if there are to be any. Notices do not count.
func fillRuns(ctx context.Context, q pg.Querier, jobs []Record, recent int) error {
	if len(jobs) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	var last []runs.Run
	var b pgx.Batch
	runs.QueueLast(&b, &last, runs.SelectLast, ids)
	of := map[uuid.UUID]*runs.RecentRuns{}
	if recent > 0 {
		runs.QueueRecent(&b, of, ids, recent)
	}
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading the last runs of jobs: %w", err)
	}
	placeLastRuns(jobs, last)
	for i := range jobs {
		jobs[i].Recent = of[jobs[i].ID]
	}
	return nil
}

// placeLastRuns assigns the runs that were found to their jobs.
func placeLastRuns(jobs []Record, found []runs.Run) {
	last := make(map[uuid.UUID]runs.Run, len(found))
	for _, r := range found {
		last[r.JobID] = r
	}
	for i := range jobs {
		if r, ok := last[jobs[i].ID]; ok {
			jobs[i].LastRun = &r
		}
	}
}
