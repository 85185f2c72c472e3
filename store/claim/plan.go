package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// runRows collects new runs, column by column, for one INSERT.
type runRows struct {
	ids, jobs           []uuid.UUID
	scheduledFor, dueAt []time.Time
	tenants, versions   []int32
	lanes               []int16
	late                []bool
	triggers            []string
	events              []RunEvent
}

func (r *runRows) add(job *domain.Job, lane int16, p domain.PlannedRun) {
	r.ids = append(r.ids, domain.SlotRunID(job.ID, p.ScheduledFor))
	r.jobs = append(r.jobs, job.ID)
	r.scheduledFor = append(r.scheduledFor, p.ScheduledFor)
	r.dueAt = append(r.dueAt, p.DueAt)
	r.tenants = append(r.tenants, job.Tenant)
	r.versions = append(r.versions, job.Version)
	r.lanes = append(r.lanes, lane)
	r.late = append(r.late, p.Late)
	r.triggers = append(r.triggers, string(p.Trigger))
	if p.Late {
		r.events = append(r.events, RunEvent{job, domain.EventLate, r.ids[len(r.ids)-1]})
	}
}

// SkipRows collects recorded skips, column by column, for one INSERT.
type SkipRows struct {
	IDs, jobs         []uuid.UUID
	blockedBy         []*uuid.UUID
	first, last       []time.Time
	counts            []*int32
	tenants, versions []int32
	lanes             []int16
	reasons           []string
	events            []RunEvent
}

// Add adds a skip of a job.
func (r *SkipRows) Add(job *domain.Job, lane int16, s domain.Skip, now time.Time) {
	r.IDs = append(r.IDs, domain.NewRunID(now))
	r.jobs = append(r.jobs, job.ID)
	r.first = append(r.first, s.First)
	r.last = append(r.last, s.Last)
	r.tenants = append(r.tenants, job.Tenant)
	r.versions = append(r.versions, job.Version)
	r.lanes = append(r.lanes, lane)
	r.reasons = append(r.reasons, string(s.Reason))
	var count *int32
	if s.Count > 0 {
		n := int32(s.Count)
		count = &n
	}
	r.counts = append(r.counts, count)
	var blocker *uuid.UUID
	if s.BlockedBy != uuid.Nil {
		blocker = &s.BlockedBy
	}
	r.blockedBy = append(r.blockedBy, blocker)
	if s.Reason == domain.ReasonMissed {
		r.events = append(r.events, RunEvent{job, domain.EventMissed, r.IDs[len(r.IDs)-1]})
	}
}

// A row's created_at is the instant of the write, not the beginning of the transaction: an edit's transaction may have
// waited for a lock, and a slot may have become due meanwhile.
//
// created_at is never before the slot: the clock may have been set back since the slot was found due.
//
// scheduled_for of a skip is its last slot, because lists by time look for it there.
const insertSkips = `
INSERT INTO punctual.runs (id, job_id, blocked_by, scheduled_for, due_at, created_at, finished_at, skipped_first,
    skipped_last, tenant, job_version, skipped_count, lane, status, trigger, reason)
SELECT u.id, u.job_id, u.blocked_by, u.last, u.last, greatest(made.at, u.last), greatest(made.at, u.last), u.first,
       u.last, u.tenant, u.version, u.count, u.lane, 'skipped', 'schedule', u.reason
FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::int[], $7::int[],
            $8::int[], $9::smallint[], $10::text[])
     AS u(id, job_id, blocked_by, first, last, count, tenant, version, lane, reason),
     (SELECT clock_timestamp() AS at) made`

// Queue queues the INSERT.
func (r *SkipRows) Queue(b *pgx.Batch) {
	b.Queue(insertSkips, r.IDs, r.jobs, r.blockedBy, r.first, r.last, r.counts, r.tenants, r.versions, r.lanes, r.reasons)
}

const insertPending = `
WITH made AS (
    INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, tenant, job_version, lane, late,
                               status, trigger)
    SELECT u.id, u.job_id, u.scheduled_for, u.due_at, greatest(clock_timestamp(), u.due_at), u.tenant, u.version,
           u.lane, u.late, 'pending', u.trigger
    FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::int[], $6::int[], $7::smallint[],
                $8::bool[], $9::text[])
         AS u(id, job_id, scheduled_for, due_at, tenant, version, lane, late, trigger)
    ON CONFLICT DO NOTHING
    RETURNING id, job_id, tenant, lane)
INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
SELECT id, job_id, now(), tenant, lane FROM made`

func (r *runRows) queuePending(b *pgx.Batch) {
	b.Queue(insertPending, r.ids, r.jobs, r.scheduledFor, r.dueAt, r.tenants, r.versions, r.lanes, r.late, r.triggers)
}

// Settle writes a plan that was made outside a claim: its skips, and its runs as pending, so that any replica may claim
// them at once. Their claim decides what they replace, or wait for. The caller has locked the job's row in schedules
// and writes the next slot.
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
	following, err := s.followers.FollowWithin(ctx, tx, job.Tenant)
	if err != nil {
		return err
	}
	var runs runRows
	var skips SkipRows
	for _, p := range plan.Runs {
		runs.add(job, lane, p)
	}
	for _, p := range plan.Skips {
		skips.Add(job, lane, p, now)
	}
	var b pgx.Batch
	if len(runs.ids) > 0 {
		tx.Wake()
		runs.queuePending(&b)
	}
	if len(skips.IDs) > 0 {
		skips.Queue(&b)
	}
	following.QueueEvents(&b, append(runs.events, skips.events...))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("settling the due slots of job %s: %w", job.ID, err)
	}
	tx.Ask(following.Asks()...)
	return nil
}
