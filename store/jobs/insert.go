package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/definitions"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/seal"
	"punctual/store/secrets"
)

// fresh is a job that is about to be written for the first time.
type fresh struct {
	held
	index  int    // in its batch
	labels string // as the job's row holds them
}

func newID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	return id, pg.Wrap("making a job's id", err)
}

// prepare makes a new job's rows without writing anything. A job that cannot be written is refused here.
func (s *Jobs) prepare(ctx context.Context, tenant int32, job NewJob, f facts) (*fresh, error) {
	id, err := job.id, error(nil)
	if id == uuid.Nil {
		id, err = newID()
	}
	if err != nil {
		return nil, err
	}
	n := &fresh{held: held{jobRow: &jobRow{tenant: tenant}}}
	n.ID, n.Version, n.CreatedAt, n.UpdatedAt = id, 1, f.now, f.now
	if err := n.define(s, job.Definition, f); err != nil {
		return nil, err
	}
	if n.labels, err = names.EncodeLabels(n.Definition.Labels); err != nil {
		return nil, fmt.Errorf("encoding labels: %w", err)
	}
	if err := s.checkFirst(n.job, f); err != nil {
		return nil, err
	}
	n.placeFirst(f.now)
	n.enter(ctx, n.stateFor(job.Paused != nil && *job.Paused), f.now)
	return n, nil
}

// define gives the job a definition, with all that follows from it except the next slot.
func (h *held) define(s *Jobs, d jobspec.Definition, f facts) error {
	full := d.WithDefaults()
	queue, err := f.queues.id("queue", full.Queue)
	if err != nil {
		return err
	}
	for i, step := range d.Steps {
		if step.Queue == "" {
			continue
		}
		if _, err := f.queues.id(fmt.Sprintf("steps[%d].queue", i), step.Queue); err != nil {
			return err
		}
	}
	if err := s.definitions.CheckWindow(d); err != nil {
		return err
	}
	if err := f.checkLimits(d); err != nil {
		return err
	}
	h.hidden = secrets.Of(h.tenant, h.ID)
	if d, err = h.hidden.Seal(d, f.secrets); err != nil {
		return err
	}
	job, err := s.definitions.Compile(definitions.Version{Job: h.ID, Version: h.Version}, h.tenant, d)
	if err != nil {
		return err
	}
	if err := s.crossCheck(job.Timetable); err != nil {
		return err
	}
	text, err := Encode(d)
	if err != nil {
		return err
	}
	h.Definition, h.definition, h.job, h.lane = d, text, job, full.Priority.Lane(queue)
	return nil
}

// placeFirst makes the definition's first slot the next one. For a recurring job that is the first slot after now.
func (h *held) placeFirst(now time.Time) {
	slot, ok := h.job.Timetable.First(now)
	if !ok {
		h.moveTo(time.Time{}, time.Time{}, false)
		return
	}
	h.moveTo(slot.At, h.job.Timetable.Due(slot.At, nil), true)
}

// stateFor returns the state of a job, which depends on whether slots are left.
func (h *held) stateFor(paused bool) domain.JobState {
	switch {
	case h.ended():
		return domain.JobCompleted
	case paused:
		return domain.JobPaused
	}
	return domain.JobActive
}

// newJobs are the columns of new jobs.
var newJobs = pg.Columns[*fresh]{
	pg.Col("id", "uuid", func(j *fresh) uuid.UUID { return j.ID }),
	pg.Col("name", "text", func(j *fresh) string { return j.Definition.Name }),
	pg.Col("state", "text", func(j *fresh) string { return string(j.State) }),
	pg.Col("kind", "text", func(j *fresh) string { return string(j.Definition.Schedule.Kind()) }),
	pg.Col("labels", "text", func(j *fresh) string { return j.labels }),
	pg.Col("definition", "text", func(j *fresh) seal.Document { return seal.Document(j.definition) }),
	pg.Col("scheduled_for", "timestamptz", func(j *fresh) *time.Time { return j.scheduledFor }),
	pg.Col("next_run_at", "timestamptz", func(j *fresh) *time.Time { return j.nextRunAt }),
	pg.Col("lane", "smallint", func(j *fresh) int16 { return j.lane }),
	pg.Col("enabled", "boolean", func(j *fresh) bool { return j.enabled }),
	pg.Col("gated", "boolean", func(j *fresh) bool { return claim.Gated(j.Definition) }),
	pg.Col("entry", "uuid", func(j *fresh) uuid.UUID { return domain.NewRunID(j.CreatedAt) }), // of the audit log
	pg.Col("masked", "text", func(j *fresh) *seal.Document { return (*seal.Document)(audit.MaskedOf(j.definition)) }),
	pg.Col("event", "text", func(j *fresh) *string { return j.event() }),
}

// One statement writes everything of new jobs. A job whose name is taken is left out; the statement waits for a
// transaction that is writing the same name. It waits for the deletion of the tenant too, whose key still works for a
// moment after that.
var insertJobs = strings.NewReplacer(
	"{jobs}", newJobs.Unnest("n"), "{tenant}", newJobs.Arg(1)+"::integer", "{now}", newJobs.Arg(2)+"::timestamptz",
	"{actor_kind}", newJobs.Arg(3)+"::text", "{actor}", newJobs.Arg(4)+"::text",
	"{address}", newJobs.Arg(5)+"::text::inet", "{request_id}", newJobs.Arg(6)+"::text",
	"{paused_by}", newJobs.Arg(7)+"::text").Replace(`
WITH owner AS MATERIALIZED (
	SELECT id, name FROM punctual.tenants WHERE id = {tenant} AND deleted_at IS NULL FOR KEY SHARE),
new AS (SELECT * FROM {jobs}),
made AS (
	INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue,
		labels, named, created_at, updated_at, paused_at, paused_by)
	SELECT n.id, {tenant}, 1, n.name, CASE n.state WHEN 'completed' THEN 'active' ELSE n.state END, n.kind,
		n.lane / 4, n.labels::jsonb, n.state <> 'completed', {now}, {now},
		CASE n.state WHEN 'paused' THEN {now} END, CASE n.state WHEN 'paused' THEN {paused_by} END
	FROM new n CROSS JOIN owner
	ON CONFLICT (tenant, name) WHERE named DO NOTHING
	RETURNING id),
versions AS (
	INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition, tenant, event)
	SELECT n.id, 1, {now}, n.state, n.definition::json, CASE WHEN n.event IS NOT NULL THEN {tenant} END, n.event
	FROM new n JOIN made ON made.id = n.id),
next AS (
	INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled, completed_at)
	SELECT n.id, n.scheduled_for, n.next_run_at, {tenant}, 1, n.lane, n.enabled,
		CASE n.state WHEN 'completed' THEN {now} END
	FROM new n JOIN made ON made.id = n.id),
gates AS (
	INSERT INTO punctual.exclusive (job_id) SELECT n.id FROM new n JOIN made ON made.id = n.id WHERE n.gated),
audited AS (
	INSERT INTO punctual.audit_entries (id, resource_id, job_id, tenant, at, action, name, after,
		actor_kind, actor, address, request_id)
	SELECT n.entry, n.id, n.id, {tenant}, {now}, 'job.create', n.name,
		('{"version":1,"state":"' || n.state || '","definition":' || coalesce(n.masked, n.definition) || '}')::json,
		{actor_kind}, {actor}, {address}, {request_id}
	FROM new n JOIN made ON made.id = n.id)
SELECT made.id, owner.name FROM made CROSS JOIN owner`)

// The rows of a batch that stand in tables of package claim: see insertMany.
const (
	insertScheduleRows = `
		INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled, completed_at)
		SELECT unnest($2::uuid[]), unnest($3::timestamptz[]), unnest($4::timestamptz[]), $1::integer, 1,
			unnest($5::smallint[]), unnest($6::boolean[]), unnest($7::timestamptz[])`
	insertGateRows = `INSERT INTO punctual.exclusive (job_id) SELECT unnest($1::uuid[])`
)

// insertReleasing writes the new jobs whose names are free, or are completed jobs' by now, in one statement, which is
// atomic even outside a transaction. It returns the others, and whether a job that it wrote is due very soon.
func insertReleasing(
	ctx context.Context, q pg.Querier, tenant int32, jobs []*fresh, now time.Time,
) (taken []*fresh, due bool, err error) {
	taken, due, err = insertFree(ctx, q, tenant, jobs, now)
	if err != nil || len(taken) == 0 {
		return taken, due, err
	}
	released, err := releaseNames(ctx, q, tenant, jobNames(taken), claim.Wait)
	if err != nil || !released {
		return taken, due, err
	}
	taken, more, err := insertFree(ctx, q, tenant, taken, now)
	return taken, due || more, err
}

// unfinished counts the jobs that have slots left.
func unfinished(jobs []*fresh) (n int) {
	for _, j := range jobs {
		if j.State != domain.JobCompleted {
			n++
		}
	}
	return n
}

// completedHolders are completed jobs that still have a name.
const completedHolders = `
SELECT j.id, j.version FROM punctual.jobs j LEFT JOIN punctual.schedules s ON s.job_id = j.id
WHERE j.tenant = $1 AND j.name = ANY($2::text[]) AND j.named AND punctual.is_completed(j, s)`

// releaseNames takes the names from completed jobs that still have them, and reports whether there were any. They have
// them because the claim of a job's last slot does not free its name. A job that is at the same version when its row is
// locked is still completed, as a restart writes a new version. A caller that holds locks already passes over locked
// rows.
func releaseNames(ctx context.Context, q pg.Querier, tenant int32, names []string, locked string) (bool, error) {
	var over []uuid.UUID
	var versions []int32
	rows := pg.Query(ctx, q, completedHolders, tenant, names)
	if err := pg.Each2(rows, func(id uuid.UUID, version int32) {
		over, versions = append(over, id), append(versions, version)
	}); err != nil || len(over) == 0 {
		return false, pg.Wrap("looking for completed jobs", err)
	}
	released, err := pg.All(ctx, q, pgx.RowTo[uuid.UUID], `
		WITH over AS (
			SELECT j.id FROM punctual.jobs j JOIN unnest($1::uuid[], $2::int[]) AS u(id, version)
			  ON j.id = u.id AND j.version = u.version
			WHERE j.named AND j.state = 'active' ORDER BY j.id FOR NO KEY UPDATE OF j`+locked+`)
		UPDATE punctual.jobs j SET named = false FROM over o WHERE j.id = o.id RETURNING j.id`, over, versions)
	return len(released) > 0, pg.Wrap("releasing the names of completed jobs", err)
}

// insertFree writes the new jobs whose names are free, and returns the others.
func insertFree(
	ctx context.Context, q pg.Querier, tenant int32, jobs []*fresh, now time.Time,
) (taken []*fresh, due bool, err error) {
	if len(jobs) == 0 {
		return nil, false, nil
	}
	// Sorted, so that two batches with the same names wait for each other and do not deadlock.
	slices.SortFunc(jobs, compareNames)
	actor := audit.ActorOf(ctx)
	args := append(append(newJobs.Args(jobs), tenant, now), append(actor.Columns(), actor.Words())...)
	if len(jobs) == 1 {
		args = slices.Insert(args, 0, any(pg.Prepared{})) // a batch deserves a plan made for its number of jobs
	}
	owners, err := pg.Map[uuid.UUID, string](ctx, q, insertJobs, args...) // the names of the tenants of written jobs
	if err != nil {
		return nil, false, fmt.Errorf("writing new jobs: %w", err)
	}
	var more pgx.Batch
	for _, j := range jobs {
		owner, written := owners[j.ID]
		if !written {
			taken = append(taken, j)
			continue
		}
		j.Tenant = owner
		j.hidden.Queue(&more)
		claim.QueueLimits(&more, tenant, j.ID, j.Definition.AllLimits())
		due = due || j.dueSoon(now)
	}
	if more.Len() > 0 { // then q is a transaction
		if err := q.SendBatch(ctx, &more).Close(); err != nil {
			return nil, false, fmt.Errorf("writing the secrets and limits of new jobs: %w", err)
		}
	}
	return taken, due, nil
}

// dueSoon reports whether the loops must be woken for the job's first slot.
func (h *held) dueSoon(now time.Time) bool { return h.enabled && h.nextRunAt.Before(now.Add(pg.Soon)) }

// record returns the job as a read would: instants are in microseconds, and bodies have no needless blanks. A
// new job has no last run.
func (n *fresh) record() Record {
	r := n.Record
	r.Definition.EachTarget(func(_ string, t *jobspec.Target) {
		if body := new(bytes.Buffer); json.Compact(body, t.Body) == nil {
			t.Body = body.Bytes()
		}
	})
	if n.enabled {
		r.NextScheduledFor, r.NextRunAt = stored(*n.scheduledFor), stored(*n.nextRunAt)
	}
	return r
}

// stored returns an instant as the database keeps it.
func stored(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}

// isNameTaken recognises a violation of the unique index on names by the name of the index.
func isNameTaken(err error) bool {
	var dbErr *pgconn.PgError
	return errors.As(err, &dbErr) && dbErr.Code == "23505" && dbErr.ConstraintName == "job_name_is_unique"
}
