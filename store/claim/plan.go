package claim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/pg"
)

// plannedRun is a run of a slot, to be inserted.
type plannedRun struct {
	domain.PlannedRun
	id    uuid.UUID
	job   *domain.Job
	lane  int16
	fence int64 // if it is given with the run
}

func newPlannedRun(job *domain.Job, lane int16, fence int64, p domain.PlannedRun) plannedRun {
	return plannedRun{p, domain.SlotRunID(job.ID, p.ScheduledFor), job, lane, fence}
}

func (r plannedRun) runID() uuid.UUID { return r.id }

// plannedRuns are the columns that the inserts of slots' runs have in common.
var plannedRuns = pg.Columns[plannedRun]{
	pg.Col("id", "uuid", plannedRun.runID),
	pg.Col("job_id", "uuid", func(r plannedRun) uuid.UUID { return r.job.ID }),
	pg.Col("scheduled_for", "timestamptz", func(r plannedRun) time.Time { return r.ScheduledFor }),
	pg.Col("due_at", "timestamptz", func(r plannedRun) time.Time { return r.DueAt }),
	pg.Col("tenant", "integer", func(r plannedRun) int32 { return r.job.Tenant }),
	pg.Col("job_version", "integer", func(r plannedRun) int32 { return r.job.Version }),
	pg.Col("lane", "smallint", func(r plannedRun) int16 { return r.lane }),
	pg.Col("late", "bool", func(r plannedRun) bool { return r.Late }),
	pg.Col("trigger", "text", func(r plannedRun) string { return string(r.Trigger) }),
}

// lateness returns the events of the runs that are late.
func lateness(runs []plannedRun) (events []RunEvent) {
	for _, r := range runs {
		if r.Late {
			events = append(events, RunEvent{r.job, jobspec.EventLate, r.id})
		}
	}
	return events
}

// Skip is a recorded skip, to be inserted.
type Skip struct {
	domain.Skip
	Job  *domain.Job
	Lane int16
	ID   uuid.UUID
}

var skipColumns = pg.Columns[Skip]{
	pg.Col("id", "uuid", func(s Skip) uuid.UUID { return s.ID }),
	pg.Col("job_id", "uuid", func(s Skip) uuid.UUID { return s.Job.ID }),
	pg.Col("blocked_by", "uuid", func(s Skip) *uuid.UUID { return pg.OrNull(s.BlockedBy) }),
	pg.Col("first", "timestamptz", func(s Skip) time.Time { return s.First }),
	pg.Col("last", "timestamptz", func(s Skip) time.Time { return s.Last }),
	pg.Col("count", "integer", func(s Skip) *int32 { return pg.OrNull(int32(s.Count)) }),
	pg.Col("tenant", "integer", func(s Skip) int32 { return s.Job.Tenant }),
	pg.Col("version", "integer", func(s Skip) int32 { return s.Job.Version }),
	pg.Col("lane", "smallint", func(s Skip) int16 { return s.Lane }),
	pg.Col("reason", "text", func(s Skip) string { return string(s.Reason) }),
	pg.Col("trigger", "text", func(s Skip) string { return string(cmp.Or(s.Trigger, domain.TriggerSchedule)) }),
}

// misses returns the events of the skips of missed slots.
func misses(skips []Skip) (events []RunEvent) {
	for _, s := range skips {
		if s.Reason == domain.ReasonMissed {
			events = append(events, RunEvent{s.Job, jobspec.EventMissed, s.ID})
		}
	}
	return events
}

// A row's created_at is the instant of the write, not the beginning of the transaction: an edit's transaction may have
// waited for a lock, and a slot may have become due meanwhile.
//
// created_at is never before the slot: the clock may have been set back since the slot was found due.
//
// scheduled_for of a skip is its last slot, because lists by time look for it there.
var insertSkips = days.AnyDay.Of(inserting(`id, job_id, blocked_by, scheduled_for, due_at, created_at, finished_at,
    skipped_first, skipped_last, tenant, job_version, skipped_count, lane, status, trigger, reason`, `
SELECT u.id, u.job_id, u.blocked_by, u.last, u.last, greatest(made.at, u.last), greatest(made.at, u.last), u.first,
       u.last, u.tenant, u.version, u.count, u.lane, 'skipped', u.trigger, u.reason
FROM `+skipColumns.Unnest("u")+`,
     (SELECT clock_timestamp() AS at) made`))

// QueueSkips queues the INSERT of skips.
func QueueSkips(b *pgx.Batch, skips []Skip) {
	if len(skips) > 0 {
		b.Queue(insertSkips, skipColumns.Args(skips)...)
	}
}

var insertPending = days.AnyDay.Of(`
WITH ` + Entering(`created_at, status, `+plannedRuns.Names(), `
    SELECT greatest(clock_timestamp(), u.due_at), 'pending', u.*
    FROM `+plannedRuns.Unnest("u")))

func queuePending(b *pgx.Batch, runs []plannedRun) {
	if len(runs) > 0 {
		b.Queue(insertPending, plannedRuns.Args(runs)...)
	}
}

// Settle writes a plan that was made outside a claim: its skips, and its runs as pending, so that any replica may claim
// them at once. Their claim decides what they replace, or wait for. The caller has locked the job's row in schedules
// and writes the next slot. ErrState says that Postgres refuses a run of these: no slot is given up unrecorded.
func (s *Claims) Settle(
	ctx context.Context, tx *pg.Tx, job *domain.Job, lane int16, plan domain.Plan, now time.Time,
) error {
	if len(plan.Runs)+len(plan.Skips) == 0 {
		return nil
	}
	for _, run := range plan.Runs {
		// A slot's run lies in the partition of its slot, which may have been dropped or never made.
		if run.ScheduledFor.Before(now.Add(-24 * time.Hour)) {
			if _, err := tx.Exec(ctx, `SELECT punctual.create_partition_of($1)`, run.ScheduledFor); err != nil {
				return fmt.Errorf("making the partition of slot %s: %w", run.ScheduledFor.Format(time.RFC3339), err)
			}
		}
	}
	following, err := s.followers.Follow(ctx, tx, job.Tenant)
	if err != nil {
		return err
	}
	runs := pg.Column(plan.Runs, func(p domain.PlannedRun) plannedRun { return newPlannedRun(job, lane, 0, p) })
	skips := pg.Column(plan.Skips, func(p domain.Skip) Skip { return Skip{p, job, lane, domain.NewRunID(now)} })
	if len(runs) > 0 {
		tx.Wake()
	}
	var b pgx.Batch
	queuePending(&b, runs)
	QueueSkips(&b, skips)
	following.QueueEvents(&b, append(lateness(runs), misses(skips)...))
	switch err := tx.SendBatch(ctx, &b).Close(); {
	case pg.Code(err) != "" && !pg.Away(err):
		return fmt.Errorf("%w: a slot of job %s is due, and its run cannot be written (%w). Fix that, then try again: "+
			"see `punctual aside list`", pg.ErrState, job.ID, err)
	case err != nil:
		return fmt.Errorf("settling the due slots of job %s: %w", job.ID, err)
	}
	tx.Ask(following.Asks()...)
	return nil
}
