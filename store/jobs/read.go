package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/links"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/runs"
	"punctual/store/seal"
)

// jobRow is a job as the tables hold it: the record, and what a write needs besides.
type jobRow struct {
	Record
	tenant       int32
	lane         int16
	enabled      bool
	scheduledFor *time.Time // next slot, also of a paused job; nil if there is none
	nextRunAt    *time.Time
	definition   string // as stored, but opened
	unopened     error  // why a body in it cannot be opened
	backfilled   bool   // a backfill was ordered
	readAt       time.Time
}

// jobColumns leaves it to placeLastRuns to find when a one-shot without a schedule was completed.
const jobColumns = `j.id, t.name, j.version, punctual.job_state(j, s),
	j.paused_at, j.paused_until, coalesce(j.paused_by, ''), coalesce(j.pause_note, ''),
	j.created_at, j.updated_at, s.completed_at, j.tenant, ` + names.Lane + `,
	coalesce(s.enabled, false), s.scheduled_for, s.next_run_at, v.definition::text,
	f.failing_since, f.stale_since, f.overlapping_since,
	EXISTS (SELECT FROM punctual.operations o WHERE o.job_id = j.id), now()`

const jobTables = `punctual.jobs j
	JOIN punctual.tenants t ON t.id = j.tenant
	LEFT JOIN punctual.schedules s ON s.job_id = j.id
	JOIN punctual.job_versions v ON v.job_id = j.id AND v.version = j.version
	LEFT JOIN punctual.notified f ON f.job_id = j.id`

func scanJob(row pgx.CollectableRow) (*jobRow, error) {
	var j jobRow
	var text seal.TriedDocument
	err := row.Scan(&j.ID, &j.Tenant, &j.Version, &j.State, &j.PausedAt, &j.PausedUntil, &j.PausedBy, &j.PauseNote,
		&j.CreatedAt, &j.UpdatedAt, &j.CompletedAt, &j.tenant, &j.lane, &j.enabled, &j.scheduledFor, &j.nextRunAt,
		&text, &j.FailingSince, &j.StaleSince, &j.OverlappingSince, &j.backfilled,
		&j.readAt)
	if err != nil {
		return nil, err
	}
	j.definition, j.unopened = text.Text, text.Err
	if err := json.Unmarshal([]byte(j.definition), &j.Definition); err != nil {
		return nil, fmt.Errorf("job %s version %d: its definition: %w", j.ID, j.Version, err)
	}
	if j.enabled {
		j.NextScheduledFor, j.NextRunAt = j.scheduledFor, j.nextRunAt
	}
	return &j, nil
}

// GetJob returns a job by its id or name. A name means the active or paused job that has it, or else the newest
// completed job. For a deleted job the error is ErrNotFound.
func (s *Jobs) GetJob(ctx context.Context, tenant int32, ref string) (Record, error) {
	q := s.db.Callers.Reader(tenant)
	if _, byID := pg.ParseID(ref); !byID {
		// Usually there is an active or paused job, and reading it takes one round trip.
		job, err := readWithLastRun(ctx, q, &byHolder, ref, tenant)
		if err == nil && job.State != domain.JobCompleted || err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return job, err
		}
	}
	id, err := names.Find(ctx, q, tenant, ref)
	if err != nil {
		return Record{}, err
	}
	return Read(ctx, q, tenant, id)
}

const (
	selectJob = `SELECT ` + jobColumns + ` FROM ` + jobTables + `
		WHERE j.id = $1 AND j.tenant = $2 AND j.state <> 'deleted'`
	selectHolder = `SELECT ` + jobColumns + ` FROM ` + jobTables + ` WHERE j.id = (` + holder + `)`
	// holder selects the job that a name belongs to, so that no other job can have it.
	holder = `SELECT h.id FROM punctual.jobs h WHERE h.name = $1 AND h.tenant = $2 AND h.named`
)

// Read returns one job with its last run.
func Read(ctx context.Context, q pg.Querier, tenant int32, id uuid.UUID) (Record, error) {
	job, err := readWithLastRun(ctx, q, &byID, id, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, fmt.Errorf("job %s: %w", id, pg.ErrNotFound)
	}
	return job, err
}

// oneJob says how one job is read, and its last run.
type oneJob struct {
	job, ids string // ids: an expression for an array of its id
	last     *days.Text
}

// readingJob returns how the job is read that a query gives the id of.
func readingJob(job, of string) oneJob {
	return oneJob{job: job, ids: `ARRAY(` + of + `)`, last: runs.LastOf(of)}
}

var (
	byID     = readingJob(selectJob, `SELECT h.id FROM punctual.jobs h WHERE h.id = $1 AND h.tenant = $2`)
	byHolder = readingJob(selectHolder, holder)
)

// mayHaveRunBefore reports whether the job may have runs that belong to days before a day. Those of a younger job are
// of slots before it was created: a one-shot's in the past, which an earlier version may have been, or a backfill's.
func (j *jobRow) mayHaveRunBefore(day time.Time) bool {
	schedule := j.Definition.Schedule
	return j.CreatedAt.Before(day) || j.Version > 1 || j.backfilled ||
		schedule.Kind() == jobspec.KindAt && schedule.Instant().Before(day)
}

// readWithLastRun reads one job, and its last run. If the run is of today or yesterday, all is one round trip.
func readWithLastRun(ctx context.Context, q pg.Querier, one *oneJob, args ...any) (Record, error) {
	var job *jobRow
	var last []runs.Run
	var upstreams []links.Upstream
	var b pgx.Batch
	w := days.Near()
	b.Queue(one.job, pg.Prepared{}.With(args...)...).Query(pg.IntoOne(&job, scanJob))
	runs.QueueLastOf(&b, &last, w, one.last, args...)
	links.QueueUpstreams(&b, &upstreams, one.ids, args...)
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return Record{}, fmt.Errorf("reading job %v: %w", args[0], err)
	}
	if err := runs.Complete(ctx, q, last, job.Tenant, job.Version, &job.Definition); err != nil {
		return Record{}, err
	}
	found := map[uuid.UUID]runs.Run{}
	for _, r := range last {
		found[r.JobID] = r
	}
	jobs := []Record{job.Record}
	jobs[0].Upstreams = upstreams
	if err := showLinks(ctx, q, jobs); err != nil {
		return Record{}, err
	}
	var err error
	switch {
	case w.Over(job.readAt): // this machine's clock is days behind
		var all *runs.Newest
		if all, err = runs.FindNewest(ctx, q, []uuid.UUID{job.ID}, 0); err == nil {
			found = all.Last
		}
	case len(last) == 0 && job.mayHaveRunBefore(w.From):
		found, err = runs.FindOlder(ctx, q, job.ID, w)
	}
	if err != nil {
		return Record{}, err
	}
	return jobs[0], placeLastRuns(ctx, q, jobs, found)
}

// recentWithin bounds the time that a list with recent runs takes to read them.
const recentWithin = 2 * time.Second

// fillRuns gives each job its newest run or skip, and its recent runs if there are to be any.
func fillRuns(ctx context.Context, q pg.Querier, jobs []Record, recent int) error {
	if len(jobs) == 0 {
		return nil
	}
	limited := ctx
	if recent > 0 { // they decorate a page, which is of use without them
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, recentWithin)
		defer cancel()
	}
	newest, err := runs.FindNewest(limited, q, pg.Column(jobs, func(job Record) uuid.UUID { return job.ID }), recent)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		for i := range jobs {
			jobs[i].Recent = &runs.RecentRuns{Runs: []runs.RecentRun{}, Unread: true}
		}
		return showLinks(ctx, q, jobs)
	}
	if err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].Recent = newest.Recent[jobs[i].ID]
	}
	if err := showLinks(ctx, q, jobs); err != nil {
		return err
	}
	return placeLastRuns(ctx, q, jobs, newest.Last)
}

// placeLastRuns assigns the runs that were found to their jobs. The run or skip of a one-shot's slot, which is nearly
// always the last one, also tells when the job was completed.
func placeLastRuns(ctx context.Context, q pg.Querier, jobs []Record, last map[uuid.UUID]runs.Run) error {
	var further []uuid.UUID
	for i := range jobs {
		job := &jobs[i]
		r, ran := last[job.ID]
		if ran {
			job.LastRun = &r
		}
		if job.State != domain.JobCompleted || job.CompletedAt != nil {
			continue
		}
		if ran && (r.Trigger == domain.TriggerSchedule || r.Trigger == domain.TriggerCatchup) {
			job.CompletedAt = &r.CreatedAt
		} else {
			further = append(further, job.ID)
		}
	}
	if len(further) == 0 {
		return nil
	}
	at, err := pg.Map[uuid.UUID, *time.Time](ctx, q, `
		SELECT id, punctual.slot_claimed_at(id) FROM unnest($1::uuid[]) w(id)`, further)
	for i := range jobs {
		if jobs[i].CompletedAt == nil {
			jobs[i].CompletedAt = at[jobs[i].ID]
		}
	}
	return pg.Wrap("reading when jobs were completed", err)
}
