package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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

// facts are what writes of jobs need to know besides the jobs themselves.
type facts struct {
	// now is the database's clock, read after the locks were taken and not when the transaction began: a
	// transaction that waited for a lock writes a later valid_from than the one it waited for.
	now     time.Time
	queues  queueSet
	secrets secrets.Facts // read only where a definition that is written has secrets
	rules                 // the tenant's
}

// queueSet knows the number of each queue by its name.
type queueSet map[string]int16

// id returns the number of a queue. The error blames the field that names it if there is no such queue.
func (q queueSet) id(field, name string) (int16, error) {
	id, ok := q[name]
	if !ok {
		return 0, jobspec.Blame(field, "there is no queue %.80q; there are: %s",
			name, strings.Join(slices.Sorted(maps.Keys(q)), ", "))
	}
	return id, nil
}

// readFacts reads facts in one round trip with the statements that are already in the batch.
func readFacts(ctx context.Context, q pg.Batcher, b *pgx.Batch, tenant int32) (facts, error) {
	f := facts{queues: queueSet{}}
	b.Queue(`
		SELECT clock_timestamp(), coalesce(t.max_jobs, 0), coalesce(t.min_interval, '0'),
		       ARRAY(SELECT l.name FROM punctual.limits l WHERE l.tenant = w.tenant)
		FROM (SELECT $1::integer AS tenant) w
		LEFT JOIN punctual.tenants t ON t.id = w.tenant`,
		pg.Prepared{}, tenant).QueryRow(pg.IntoPlaces(&f.now, &f.maxJobs, &f.minInterval, &f.limits))
	b.Queue(`SELECT name, id FROM punctual.queues`, pg.Prepared{}).Query(pg.IntoMap(f.queues))
	err := q.SendBatch(ctx, b).Close()
	return f, err
}

// held is a job whose row in schedules this transaction has locked, with what was read of the job after that.
type held struct {
	*jobRow
	before jobShot       // the job as it was when it was locked
	paused *time.Time    // since when it was paused then
	wasIn  int16         // its lane then
	limits bool          // whether it named limits then
	passed swallowed     // slots that became a skip because they passed while it was paused
	job    *domain.Job   // nil if this binary cannot compile the definition; then none of its slots is settled
	hidden secrets.OfJob // of a new definition, to be written with it
	gate   gateChange    // what a new definition does to the job's gate
	bare   bool          // a completed one-shot without a row in schedules: nothing of it is locked yet

	restored int32 // the version whose definition it gets again; 0: none
}

func (h *held) id() uuid.UUID { return h.ID }

// gateChange is what an edit of a job's concurrency policy does to its gate.
type gateChange int

const (
	stays  gateChange = iota
	opens             // its runs may overlap now
	closes            // its runs may overlap no longer
)

// hold locks jobs as the claim does, sorted, and reads them in a later statement. It leaves out jobs that do not exist,
// that are deleted, or that belong to another tenant (0: any tenant). A pause that is over is ended first. Completed
// one-shots get a row to be locked, which may have to wait for another transaction. With PassOver they stay bare.
func (s *Jobs) hold(
	ctx context.Context, tx *pg.Tx, tenant int32, ids []uuid.UUID, locked string,
) ([]*held, facts, error) {
	slices.SortFunc(ids, pg.CompareIDs)
	locks, err := lockSchedules(ctx, tx, tenant, ids, locked)
	if err != nil {
		return nil, facts{}, fmt.Errorf("locking jobs: %w", err)
	}
	if locked != claim.PassOver {
		ids = locks
	}
	var jobs []*held
	var b pgx.Batch
	b.Queue(`
		SELECT `+jobColumns+` FROM `+jobTables+`
		WHERE j.id = ANY($1::uuid[]) AND j.state <> 'deleted' AND ($3::integer = 0 OR j.tenant = $3::integer)
		  AND (j.id = ANY($2::uuid[]) OR s.job_id IS NULL AND punctual.is_completed(j, s))
		ORDER BY j.id`, ids, append([]uuid.UUID{}, locks...), tenant).
		Query(pg.Into(&jobs, func(row pgx.CollectableRow) (*held, error) {
			job, err := scanJob(row)
			return &held{jobRow: job, bare: err == nil && !slices.Contains(locks, job.ID)}, err
		}))
	f, err := readFacts(ctx, tx, &b, tenant)
	if err != nil {
		return nil, facts{}, fmt.Errorf("reading locked jobs: %w", err)
	}
	var over []*held
	for _, h := range jobs {
		h.job, h.before, h.paused, h.wasIn = s.compiled(h.jobRow), h.shot(), h.PausedAt, h.lane
		h.limits = len(h.Definition.AllLimits()) > 0
		if h.State == domain.JobPaused && h.PausedUntil != nil && !h.PausedUntil.After(f.now) {
			over = append(over, h)
		}
	}
	return jobs, f, s.endPauses(ctx, tx, over, f.now)
}

// lockSchedules locks the rows of jobs in schedules, and returns the jobs whose rows are locked.
func lockSchedules(
	ctx context.Context, q pg.Batcher, tenant int32, ids []uuid.UUID, locked string,
) (held []uuid.UUID, err error) {
	for range 2 { // the claim of a one-shot may delete the row that this transaction waits for
		var b pgx.Batch
		if locked != claim.PassOver {
			claim.QueueRestore(&b, tenant, ids)
		}
		b.Queue(`
			SELECT job_id FROM punctual.schedules
			WHERE job_id = ANY($1::uuid[]) AND ($2::integer = 0 OR tenant = $2::integer)
			ORDER BY job_id FOR NO KEY UPDATE`+locked, ids, tenant).Query(pg.Into(&held, pgx.RowTo[uuid.UUID]))
		err = q.SendBatch(ctx, &b).Close()
		if err != nil || len(held) == len(ids) || locked == claim.PassOver {
			break
		}
	}
	return held, err
}

// holdOne holds the job that ref means. The error is ErrNotFound if there is none.
func (s *Jobs) holdOne(ctx context.Context, tx *pg.Tx, tenant int32, ref string) (*held, facts, error) {
	_, byID := pg.ParseID(ref)
	for range rounds {
		id, err := names.Find(ctx, tx, tenant, ref)
		if err != nil {
			return nil, facts{}, err
		}
		jobs, f, err := s.hold(ctx, tx, tenant, []uuid.UUID{id}, claim.Wait)
		if err != nil {
			return nil, facts{}, err
		}
		// While this transaction waited, the job may have lost the name, and another job may have taken it.
		if len(jobs) == 1 && (byID || jobs[0].Definition.Name == ref) {
			return jobs[0], f, nil
		}
		if byID {
			break
		}
	}
	return nil, facts{}, fmt.Errorf("job %q: %w", ref, pg.ErrNotFound)
}

// changed returns the definition if it has changed; nil: what is stored is copied, byte for byte, encrypted or not.
func (h *held) changed() *seal.Document {
	if h.definition == string(h.before.Definition) {
		return nil
	}
	return new(seal.Document(h.definition))
}

// rounds is how often a write looks again for a job whose name changed hands before the write could lock it.
const rounds = 5

// compiled returns the job's current version, compiled. It does not keep what it compiles: the version may be this
// transaction's own and never be committed.
func (s *Jobs) compiled(j *jobRow) *domain.Job {
	key := definitions.Version{Job: j.ID, Version: j.Version}
	if job, ok := s.definitions.Compiled(key); ok {
		return job
	}
	job, err := s.definitions.Compile(key, j.tenant, j.Definition)
	if err != nil {
		s.options.Log.Error("a job's due slots cannot be settled by this version of Punctual",
			"job", j.ID, "version", j.Version, "error", err)
		return nil
	}
	return job
}

// place is the job's row in schedules.
func (h *held) place() claim.Place {
	return claim.Place{
		Job: h.ID, Version: h.Version, Lane: h.lane, Enabled: h.enabled, ScheduledFor: h.scheduledFor,
		NextRunAt: h.nextRunAt, CompletedAt: h.CompletedAt,
	}
}

// event returns the event at which the job runs; nil: it runs at none.
func (j *jobRow) event() *string { return pg.OrNull(j.Definition.Schedule.Event) }

// subscriber returns the tenant of a job that runs at an event; nil: it runs at none.
func (j *jobRow) subscriber() *int32 {
	if j.event() == nil {
		return nil
	}
	return &j.tenant
}

// moveTo makes slot the job's next one. If ok is false, no slot is left.
func (h *held) moveTo(slot time.Time, due time.Time, ok bool) {
	h.scheduledFor, h.nextRunAt = nil, nil
	if ok {
		h.scheduledFor, h.nextRunAt = &slot, &due
	}
}

// ended reports whether the job has had its last slot.
func (h *held) ended() bool {
	return h.scheduledFor == nil && h.Definition.Schedule.Kind().Slots()
}

// enter changes the job's state and the columns that belong to the state. A pause is ascribed to the context's actor.
func (h *held) enter(ctx context.Context, state domain.JobState, now time.Time) {
	if state != h.State {
		h.PausedAt, h.PausedUntil, h.PausedBy, h.PauseNote, h.CompletedAt = nil, nil, "", "", nil
		switch state {
		case domain.JobPaused:
			h.PausedAt, h.PausedBy = &now, audit.ActorOf(ctx).Words()
		case domain.JobCompleted:
			h.CompletedAt = &now
		}
	}
	h.State = state
	h.enabled = state == domain.JobActive && h.scheduledFor != nil
}

// saves are statements that write changed jobs, with their audit entries.
type saves struct {
	pgx.Batch
	places  []claim.Place
	moved   []uuid.UUID // jobs whose dated runs do not fit them any more
	audited audit.Rows
	wakes   bool // a job is due at once or very soon
	asks    bool // a pause ends very soon
}

// save queues the statements that write the changes as the job's next version, with its audit entry.
func (h *held) save(b *saves, now time.Time, note string) error {
	labels, err := names.EncodeLabels(h.Definition.Labels)
	if err != nil {
		return fmt.Errorf("encoding labels: %w", err)
	}
	h.Version++
	var deletedAt *time.Time
	if h.State == domain.JobDeleted {
		deletedAt = &now
	}
	b.Queue(`
		UPDATE punctual.jobs SET version = $2, name = $3, state = $4, named = $5, kind = $6, queue = $7, labels = $8::jsonb,
			updated_at = $9, paused_at = $10, paused_until = $11, paused_by = $12, pause_note = $13,
			deleted_at = $14
		WHERE id = $1`,
		h.ID, h.Version, h.Definition.Name, h.State.Stored(), h.State.HoldsName(), string(h.Definition.Schedule.Kind()),
		h.lane/4, labels, now, h.PausedAt, h.PausedUntil, pg.OrNull(h.PausedBy),
		pg.OrNull(h.PauseNote), deletedAt)
	b.Queue(`
		INSERT INTO punctual.job_versions (job_id, version, valid_from, state, definition, note, tenant, event)
		VALUES ($1, $2, $3, $4, coalesce($5::json, (SELECT p.definition FROM punctual.job_versions p
		                                            WHERE p.job_id = $1 AND p.version = $2 - 1)), $6, $7, $8)`,
		h.ID, h.Version, now, string(h.State), h.changed(), pg.OrNull(note), h.subscriber(), h.event())
	b.places = append(b.places, h.place())
	if h.State == domain.JobDeleted || h.State != domain.JobPaused && h.paused != nil || h.lane != h.wasIn {
		b.moved = append(b.moved, h.ID)
	}
	h.hidden.Queue(&b.Batch)
	if h.limits {
		claim.QueueForgetLimits(&b.Batch, h.ID)
	}
	if h.State != domain.JobDeleted {
		claim.QueueLimits(&b.Batch, h.tenant, h.ID, h.Definition.AllLimits())
	}
	switch {
	case h.gate == opens:
		claim.QueueReleaseAll(&b.Batch, h.ID)
		b.wakes = true
	case h.gate == closes:
		claim.QueueCloseGate(&b.Batch, h.ID)
	case claim.Gated(h.Definition):
		claim.QueueGate(&b.Batch, h.ID)
	}
	b.wakes = b.wakes || h.dueSoon(now)
	b.asks = b.asks || h.PausedUntil != nil && h.PausedUntil.Before(now.Add(pg.Soon))
	return b.audited.Add(h.tenant, now, h.change(note))
}

// saveNow writes the changes at once.
func (h *held) saveNow(ctx context.Context, tx *pg.Tx, now time.Time, note string) error {
	var b saves
	if err := h.save(&b, now, note); err != nil {
		return err
	}
	return b.send(ctx, tx)
}

// send writes the jobs. If another job has one of the names, the error is ErrNameTaken.
func (b *saves) send(ctx context.Context, tx *pg.Tx) error {
	if b.Len() == 0 {
		return nil
	}
	if b.wakes {
		tx.Wake()
	}
	if b.asks {
		tx.Ask(ChorePauses)
	}
	claim.QueuePlaces(&b.Batch, b.places...)
	if len(b.moved) > 0 {
		queueDatedWork(&b.Batch, b.moved)
		tx.Ask(ChoreDated)
	}
	b.audited.Queue(ctx, &b.Batch)
	err := tx.SendBatch(ctx, &b.Batch).Close()
	if isNameTaken(err) {
		return ErrNameTaken
	}
	return pg.Wrap("writing jobs", err)
}
