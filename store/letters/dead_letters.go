package letters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/runs"
	"punctual/store/seal"
)

// DeadLetter is a run that exhausted its attempts. It stays after it was resolved.
type DeadLetter struct {
	RunID        uuid.UUID      `json:"run" format:"uuid" doc:"The dead run." example:"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"`
	JobID        uuid.UUID      `json:"job_id" format:"uuid" doc:"Its job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job          string         `json:"job" doc:"The job's name when the run died." example:"daily-invoice-gen"`
	JobVersion   int32          `json:"job_version" doc:"Version of the definition it used." example:"7"`
	Trigger      domain.Trigger `json:"trigger" doc:"Its origin." example:"schedule"`
	ScheduledFor time.Time      `json:"scheduled_for" doc:"Its slot; for a manual run, when it was requested."`
	DiedAt       time.Time      `json:"died_at" doc:"When it became dead."`
	Reason       *domain.Reason `json:"reason" nullable:"true" doc:"Why its last attempt failed." example:"http_5xx"`
	Attempts     int            `json:"attempts" doc:"How many attempts it had." example:"5"`
	HTTPStatus   *int           `json:"http_status" doc:"Status of the last response, if there was one." example:"503"`
	Error        *string        `json:"error" doc:"The last error, for people."`
	ResolvedAt   *time.Time     `json:"resolved_at" doc:"When it was resolved or replayed. Null: it is open."`
	Note         *string        `json:"note" doc:"The note given when it was resolved or replayed."`
	CausedBy     *uuid.UUID     `json:"caused_by" format:"uuid" nullable:"true" doc:"Of trigger chain: the run that ended. Of trigger event: the event. A replay has the same cause, and sends the body of the same event."`
	ReplayedAs   *uuid.UUID     `json:"replayed_as" format:"uuid" nullable:"true" doc:"The run that replays it."`
}

// DeadLetterFilter selects dead letters; empty fields select all. As JSON it is part of an operation.
type DeadLetterFilter struct {
	Job      string            `json:"job,omitempty"`    // name or id of a job that is not deleted
	JobID    *uuid.UUID        `json:"job_id,omitempty"` // deleted jobs too
	Reason   domain.Reason     `json:"reason,omitempty"`
	From     *time.Time        `json:"from,omitempty"` // on scheduled_for, inclusive
	To       *time.Time        `json:"to,omitempty"`   // exclusive
	Labels   map[string]string `json:"label,omitempty"`
	Resolved *bool             `json:"-"` // nil: resolved or not
	pg.Page  `json:"-"`

	found uuid.UUID // the job that Job means
}

// deadLetterColumns stand in the order of the fields of DeadLetter.
const deadLetterColumns = `d.run_id, d.job_id, d.job_name, d.job_version, d.trigger, d.scheduled_for, d.died_at,
	d.reason, d.attempts, d.http_status, d.error, d.resolved_at, d.note, d.caused_by, d.replayed_as`

// deadLetterTables include the dead letters of jobs that were forgotten. Such dead letters have no labels.
const deadLetterTables = `punctual.dead_letters d LEFT JOIN punctual.jobs j ON j.id = d.job_id`

var scanDeadLetter = seal.Rows(pgx.RowToStructByPos[DeadLetter], "error")

var listOfLetters = pg.Listed[DeadLetter]{
	What: "dead letters", Letter: 'd', ID: `d.run_id`, Of: func(d DeadLetter) uuid.UUID { return d.RunID },
	Scan: scanDeadLetter,
}

// letterShot is the part of a dead letter that a replay or a resolution changes, as the audit log shows it.
type letterShot struct {
	Resolved   bool       `json:"resolved"`
	ReplayedAs *uuid.UUID `json:"replayed_as,omitempty"`
	Note       *string    `json:"note,omitempty"`
}

func (d DeadLetter) change(action audit.Action, after letterShot) audit.Change {
	after.Resolved = true
	before := letterShot{Resolved: d.ResolvedAt != nil, ReplayedAs: d.ReplayedAs, Note: d.Note}
	return audit.Change{Action: action, ID: d.RunID, Job: d.JobID, Name: d.Job, Before: before, After: after}
}

// ListDeadLetters returns the dead letters that the filter selects, newest first by the run's id, and the cursor of the
// next page. The cursor is empty on the last page.
func (l *Letters) ListDeadLetters(
	ctx context.Context, tenant int32, f DeadLetterFilter,
) (letters []DeadLetter, nextCursor string, err error) {
	var c pg.Conditions
	q := l.db.Callers.Reader(tenant)
	if err := selectLetters(ctx, &c, q, tenant, f); err != nil {
		return nil, "", err
	}
	return listOfLetters.Page(ctx, q, f.Page, `SELECT `+deadLetterColumns+` FROM `+deadLetterTables, c)
}

// selectLetters adds the conditions of a filter, except its page.
func selectLetters(ctx context.Context, c *pg.Conditions, q pg.Querier, tenant int32, f DeadLetterFilter) error {
	if err := f.findJob(ctx, q, tenant); err != nil {
		return err
	}
	f.onLetters(c, tenant)
	return f.onJobs(c)
}

// findJob finds the job that Job means. onLetters and onJobs come after it.
func (f *DeadLetterFilter) findJob(ctx context.Context, q pg.Querier, tenant int32) (err error) {
	if f.Job != "" {
		f.found, err = names.Find(ctx, q, tenant, f.Job)
	}
	return err
}

// onJobs adds the conditions of a filter on the jobs of dead letters.
func (f *DeadLetterFilter) onJobs(c *pg.Conditions) error {
	// names.Find does not look up an id, and the Job filter is only for jobs that are not deleted.
	c.AddIf(f.Job != "", `j.state <> 'deleted'`)
	return names.SelectLabels(c, f.Labels)
}

// onLetters adds the conditions of a filter on the dead letters themselves, except its page.
func (f *DeadLetterFilter) onLetters(c *pg.Conditions, tenant int32) {
	c.Add(`d.tenant = ?`, tenant)
	c.AddIf(f.Job != "", `d.job_id = ?`, f.found)
	c.AddIf(f.JobID != nil, `d.job_id = ?`, f.JobID)
	c.AddIf(f.Reason != "", `d.reason = ?`, f.Reason)
	c.AddIf(f.From != nil, `d.scheduled_for >= ?`, f.From)
	c.AddIf(f.To != nil, `d.scheduled_for < ?`, f.To)
	switch {
	case f.Resolved == nil:
	case *f.Resolved:
		c.Add(`d.resolved_at IS NOT NULL`)
	default:
		c.Add(`d.resolved_at IS NULL`)
	}
}

// Operator makes replays and operations of one tenant.
type Operator struct {
	pg.Writes
	letters *Letters
}

// Operator returns an Operator.
func (l *Letters) Operator(w pg.Writes) Operator { return Operator{w, l} }

// ReplayDeadLetter makes a new run of a dead one, which any replica may claim at once. The new run keeps the
// webhook-id, the Idempotency-Key, the slot and the dead run's own body and headers, and uses the job's current
// definition. The replay resolves the dead letter. ReplayDeadLetter returns ErrState when the job was deleted, or when
// the dead letter is resolved already, unless by a replay that was cancelled.
func (w Operator) ReplayDeadLetter(ctx context.Context, id uuid.UUID, note string) (runs.Run, error) {
	return pg.Do(ctx, w.Writes, func(tx *pg.Tx) (run runs.Run, err error) {
		d, err := lockDeadLetter(ctx, tx, w.Tenant, id)
		if err != nil {
			return run, err
		}
		if err := mayReplay(ctx, tx, w.Tenant, d); err != nil {
			return run, err
		}
		// The job is locked after the dead letter, without its schedule and its gate. Until the run is written, the lock
		// keeps the job from being deleted.
		state, now, err := shareJob(ctx, tx, d.JobID)
		if err != nil {
			return run, err
		}
		if state == domain.JobDeleted {
			return run, fmt.Errorf("%s: %w", gone(d.Job), pg.ErrState)
		}
		r := replay{d, domain.NewRunID(now), audit.ActorOf(ctx).Words()}
		if err := writeReplays(ctx, tx, []replay{r}, now, note, nil); err != nil {
			return run, err
		}
		if err := audit.Write(ctx, tx, w.Tenant, d.change(
			audit.DeadLetterReplay, letterShot{ReplayedAs: &r.run, Note: pg.OrNull(note)})); err != nil {
			return run, err
		}
		return runs.ReadRow(ctx, tx, w.Tenant, r.run)
	})
}

// gone says why a dead letter of a deleted job cannot be replayed.
func gone(job string) string {
	return fmt.Sprintf("job %q was deleted, so its dead letters can be resolved but not replayed", job)
}

// lockDeadLetter locks a dead letter and reads it. Until the transaction ends, no other transaction can replay or
// resolve it.
func lockDeadLetter(ctx context.Context, tx *pg.Tx, tenant int32, id uuid.UUID) (DeadLetter, error) {
	d, err := pg.One(ctx, tx, scanDeadLetter, `
		SELECT `+deadLetterColumns+`
		FROM punctual.dead_letters d
		WHERE d.run_id = $1 AND d.tenant = $2
		FOR UPDATE`, id, tenant)
	return d, pg.Found(err, "dead letter %s", id)
}

// mayReplay returns ErrState for a dead letter that is no longer open. A dead letter whose replay was cancelled counts
// as open: the replay came to nothing and left no dead letter of its own.
func mayReplay(ctx context.Context, tx *pg.Tx, tenant int32, d DeadLetter) error {
	switch {
	case d.ResolvedAt == nil:
		return nil
	case d.ReplayedAs == nil:
		return fmt.Errorf("dead letter %s was resolved at %s: %w", d.RunID, d.ResolvedAt.Format(time.RFC3339), pg.ErrState)
	}
	var status domain.Status
	err := tx.QueryRow(ctx, `
		SELECT status FROM punctual.runs
		WHERE id = $1 AND tenant = $2`, *d.ReplayedAs, tenant).Scan(&status)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("reading the replay of dead letter %s: %w", d.RunID, err)
	case status == domain.StatusCancelled:
		return nil
	case status == domain.StatusDead:
		return fmt.Errorf("dead letter %s was replayed as run %s, which is dead as well: replay that one: %w",
			d.RunID, *d.ReplayedAs, pg.ErrState)
	}
	return fmt.Errorf("dead letter %s was replayed as run %s: %w", d.RunID, *d.ReplayedAs, pg.ErrState)
}

// shareJob keeps a job from being deleted until the transaction ends. After that it reads the job's state and the
// database's clock.
func shareJob(ctx context.Context, tx *pg.Tx, job uuid.UUID) (state domain.JobState, now time.Time, err error) {
	if err := pg.Exec(ctx, tx, `SELECT FROM punctual.jobs WHERE id = $1 FOR SHARE`, job); err != nil {
		return "", now, fmt.Errorf("locking job %s: %w", job, err)
	}
	err = tx.QueryRow(ctx, `
		SELECT coalesce((SELECT state FROM punctual.jobs WHERE id = $1), 'deleted'), clock_timestamp()`, job).
		Scan(&state, &now)
	return state, now, pg.Wrap("reading job "+job.String(), err)
}

// ResolveDeadLetter takes a dead letter from the list of open ones, with a note. A dead letter that was resolved or
// replayed before stays as it is.
func (l *Letters) ResolveDeadLetter(
	ctx context.Context, tenant int32, id uuid.UUID, note string,
) (DeadLetter, error) {
	return pg.Do(ctx, l.db.Callers.For(tenant), func(tx *pg.Tx) (DeadLetter, error) {
		d, err := lockDeadLetter(ctx, tx, tenant, id)
		if err != nil || d.ResolvedAt != nil {
			return d, err
		}
		if err := resolveLetters(ctx, tx, []uuid.UUID{id}, note); err != nil {
			return d, err
		}
		resolved := d.change(audit.DeadLetterResolve, letterShot{Note: pg.OrNull(note)})
		if err := audit.Write(ctx, tx, tenant, resolved); err != nil {
			return d, err
		}
		return lockDeadLetter(ctx, tx, tenant, id)
	})
}

// resolveLetters resolves open dead letters. The caller has locked them.
func resolveLetters(ctx context.Context, tx *pg.Tx, ids []uuid.UUID, note string) error {
	return pg.Wrap("resolving dead letters", pg.Exec(ctx, tx, `
		UPDATE punctual.dead_letters
		SET resolved_at = clock_timestamp(), note = $2
		WHERE run_id = ANY($1::uuid[]) AND resolved_at IS NULL`, ids, pg.OrNull(note)))
}

// replay is a dead letter and the run that repeats it.
type replay struct {
	DeadLetter
	run uuid.UUID
	by  string // who asked for it, in words
}

// entry is the new run. Like triggers, replays only enter ready: if the job has a gate, the claim of ready runs starts
// them one at a time.
func (r replay) entry(now time.Time) claim.Entry {
	return claim.Entry{
		ID: r.run, Job: r.JobID, Trigger: domain.TriggerReplay, ScheduledFor: r.ScheduledFor, DueAt: now,
		ReplayOf: &r.RunID, CausedBy: r.CausedBy, By: r.by,
		Sends: &claim.Sends{Key: domain.IdempotencyKey(r.Trigger, r.RunID, r.JobID, r.ScheduledFor)},
	}
}

// writeReplays makes the new runs, in the order in which they are to be claimed, and resolves their dead letters. The
// caller has locked the dead letters and keeps their jobs from being deleted. by is the operation; nil: there is none.
func writeReplays(
	ctx context.Context, tx *pg.Tx, replays []replay, now time.Time, note string, by *uuid.UUID,
) error {
	entries := pg.Column(replays, func(r replay) claim.Entry { return r.entry(now) })
	of := pg.Column(replays, func(r replay) uuid.UUID { return r.RunID })
	runs := pg.Column(replays, func(r replay) uuid.UUID { return r.run })
	if note != "" {
		note = ": " + note
	}
	var b pgx.Batch
	claim.QueueEntries(&b, now, entries...)
	b.Queue(`
		UPDATE punctual.dead_letters d
		SET resolved_at = $3, replayed_as = u.run, note = 'replayed as ' || u.run || $4::text,
			replayed_by = $5
		FROM unnest($1::uuid[], $2::uuid[]) AS u(dead, run)
		WHERE d.run_id = u.dead`, of, runs, now, note, by)
	tx.Wake()
	return pg.Wrap("writing replays", tx.SendBatch(ctx, &b).Close())
}

// Open is how many dead letters of a tenant are open.
type Open struct {
	Tenant string
	Open   int
}

// CountOpen counts the open dead letters, up to 10,000 over all tenants, of the hundred tenants with the most.
func (l *Letters) CountOpen(ctx context.Context) ([]Open, error) {
	open, err := pg.All(ctx, l.db.Chores, pgx.RowToStructByPos[Open], `
		SELECT t.name, count(*)
		FROM (SELECT tenant FROM punctual.dead_letters WHERE resolved_at IS NULL LIMIT 10000) d
		JOIN punctual.tenants t ON t.id = d.tenant
		GROUP BY t.name
		ORDER BY count(*) DESC, t.name
		LIMIT 100`)
	return open, pg.Wrap("counting open dead letters", err)
}
