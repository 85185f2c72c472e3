package jobs

import (
	"cmp"
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
	"punctual/store/names"
	"punctual/store/pg"
	"punctual/store/runs"
	"punctual/store/seal"
)

// DatedRun is a run that a caller wants at an instant, as long as no claim has taken it.
type DatedRun struct {
	Key          string            `json:"key" doc:"Unique among the job's pending dated runs." example:"order-42"`
	Run          uuid.UUID         `json:"run" format:"uuid" doc:"The id that the run will have. Another one when it is moved." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	DueAt        time.Time         `json:"due_at" doc:"When it is due." example:"2026-12-01T16:00:00Z"`
	CreatedAt    time.Time         `json:"created_at" doc:"When the key was first written." example:"2026-12-01T15:00:00Z"`
	LatestAt     *time.Time        `json:"latest_at" doc:"No replacement moves it beyond this instant. null: no such bound."`
	Sequence     *int64            `json:"sequence" doc:"A replacement with a sequence needs a higher one. null: there is none." example:"7"`
	ExpiresAfter *jobspec.Duration `json:"expires_after" nullable:"true" doc:"In place of the job's. null: the job's."`
	TriggeredBy  string            `json:"triggered_by" doc:"Who wrote it last." example:"editor key shop (punctual_3fPq)"`
}

// DateRequest is a run that a caller wants at an instant.
type DateRequest struct {
	TriggerRequest
	At           *time.Time // at most maxPast in the past; nil: Delay from now
	Delay        time.Duration
	Key          string        // unique among the job's pending dated runs; empty: its run's id
	OnConflict   KeyConflict   // what becomes of a pending one with the same key
	NotAfter     time.Duration // how long replacements may put it off from its first write; 0: without bound
	Sequence     *int64
	ExpiresAfter time.Duration
}

// maxPast leaves room for a clock that is slow and a request that waits. What is further back is a mistake.
const maxPast = time.Minute

// due returns when the run is due.
func (r DateRequest) due(now time.Time) time.Time {
	if r.At != nil {
		return *r.At
	}
	return now.Add(r.Delay)
}

// KeyConflict says what a dated run does with a pending one that has its key.
type KeyConflict string

// The choices of KeyConflict.
const (
	KeyKeep    KeyConflict = "keep"
	KeyReplace KeyConflict = "replace"
	KeyError   KeyConflict = "error"
)

// Dated is what became of a DateRequest.
type Dated struct {
	Key      string    `json:"key" doc:"The key of the dated run: the request's, or one that the server made." example:"order-42"`
	Run      uuid.UUID `json:"run" format:"uuid" doc:"The id that the run will have. Another one when it is moved." example:"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968"`
	DueAt    time.Time `json:"due_at" doc:"When it is due." example:"2026-12-01T16:00:00Z"`
	Created  bool      `json:"created" doc:"false: a run with the key was pending." example:"true"`
	Replaced bool      `json:"replaced" doc:"Whether that run was moved." example:"false"`
	Outdated bool      `json:"outdated" doc:"Nothing was written: run, with a sequence as high, left in the last day." example:"false"`
}

// TriggerAt makes a dated run of a job, whatever the job's schedule says. Until it is claimed it has no row in runs.
// Its claim decides as for a slot, by the definition that the job has then. The errors are those of TriggerJob, but for
// *ActiveRunError. An error of a field of the request is a jobspec.Problem or a *jobspec.Refusal. The Refusal's code is
// key_pending if a run with the key is pending and OnConflict is KeyError.
func (w Writer) TriggerAt(ctx context.Context, ref string, r DateRequest) (Dated, error) {
	out, err := w.date(ctx, ref, func(int) string { return "" }, r)
	if err != nil {
		return Dated{}, err
	}
	return out[0], nil
}

// TriggerBatch is TriggerAt for many runs of a job, all or none. Their keys must differ. The errors name the field of
// the request at its index: items[3].at. It returns what became of the requests, in their order.
func (w Writer) TriggerBatch(ctx context.Context, ref string, requests []DateRequest) ([]Dated, error) {
	return w.date(ctx, ref, func(i int) string { return fmt.Sprintf("items[%d].", i) }, requests...)
}

const writeDated = `
	SELECT key, run, due_at, created, replaced, outdated
	FROM punctual.write_dated(key => $1, of_job => $2, of_tenant => $3, in_lane => $4, due => $5, on_conflict => $6,
	                          not_after => $7, sequence => $8, expires_after => $9, headers => $10, body => $11,
	                          triggered_by => $12, traceparent => $13)`

// date writes dated runs of a job. within returns what precedes the fields of a request in errors.
func (w Writer) date(
	ctx context.Context, ref string, within func(i int) string, requests ...DateRequest,
) ([]Dated, error) {
	out := make([]Dated, len(requests))
	err := w.InTx(ctx, func(tx *pg.Tx) error {
		submitter := slices.ContainsFunc(requests, func(r DateRequest) bool { return r.Submitter })
		job, now, err := w.store.lockToTrigger(ctx, tx, w.Tenant, ref, submitter)
		if err != nil {
			return err
		}
		var blames []jobspec.Problem
		for i, r := range requests {
			out[i].DueAt = r.due(now)
			for _, wrong := range slices.Concat(r.misdated(out[i].DueAt, now),
				jobspec.BlamesOf(job.takes(r.Headers, false))) {
				blames = append(blames, jobspec.Blame(within(i)+wrong.Field, "%s", wrong.Message))
			}
			out[i].Key = r.Key
		}
		if err := jobspec.Invalid(blames); err != nil {
			return err
		}
		if err := job.writeDated(ctx, tx, requests, out); err != nil {
			return err
		}
		if slices.ContainsFunc(out, func(w Dated) bool { return w.DueAt.Before(now.Add(pg.Soon)) }) {
			tx.Wake()
		}
		return keysPending(requests, out, within)
	})
	return out, err
}

// misdated returns what is wrong with the instants of a request.
func (r DateRequest) misdated(due, now time.Time) (wrong []jobspec.Problem) {
	if past := now.Sub(due); past > maxPast {
		wrong = append(wrong, jobspec.Blame("at", "%q is %s in the past, and may be at most %s; leave it out for now",
			due.Format(time.RFC3339), jobspec.Short(past.Truncate(time.Second)), jobspec.Short(maxPast)))
	}
	if ahead := due.Sub(now); r.NotAfter > 0 && ahead > r.NotAfter {
		wrong = append(wrong, jobspec.Blame("not_after", "%q ends before the run is due: in %s",
			jobspec.Short(r.NotAfter), jobspec.Short(ahead.Round(time.Second))))
	}
	return wrong
}

// writeDated writes runs whose keys and instants are in out, and puts there what became of them. It writes in the order
// of the keys, so that two batches do not wait for each other.
func (j *jobRow) writeDated(ctx context.Context, tx *pg.Tx, requests []DateRequest, out []Dated) error {
	order := make([]int, len(out))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(out[a].Key, out[b].Key) })
	by := audit.ActorOf(ctx).Words()
	var b pgx.Batch
	for _, i := range order {
		r, wrote := &requests[i], &out[i]
		headers, err := encodeHeaders(r.Headers)
		if err != nil {
			return err
		}
		b.Queue(writeDated, pg.OrNull(wrote.Key), j.ID, j.tenant, j.lane, wrote.DueAt, string(cmp.Or(r.OnConflict, KeyKeep)),
			pg.OrNull(r.NotAfter), r.Sequence, pg.OrNull(r.ExpiresAfter), seal.JSON(headers), seal.Bytes(r.Body), by,
			pg.OrNull(r.TraceParent)).
			QueryRow(pg.IntoPlaces(&wrote.Key, &wrote.Run, &wrote.DueAt, &wrote.Created, &wrote.Replaced, &wrote.Outdated))
	}
	err := tx.SendBatch(ctx, &b).Close()
	if refused, is := errors.AsType[*pgconn.PgError](err); is && refused.Code == "PU409" {
		return &jobspec.Refusal{Code: "limit", Reason: refused.Message}
	}
	return pg.Wrap("writing dated runs of job "+j.ID.String(), err)
}

// keysPending refuses requests with KeyError whose keys were pending.
func keysPending(requests []DateRequest, out []Dated, within func(i int) string) error {
	var blames []jobspec.Problem
	for i, r := range requests {
		if r.OnConflict == KeyError && !out[i].Created {
			blames = append(blames, jobspec.Blame(within(i)+"key", "%.80q is the key of a pending run, which is due at %s",
				r.Key, out[i].DueAt.Format(time.RFC3339)))
		}
	}
	switch len(blames) {
	case 0:
		return nil
	case 1:
		return &jobspec.Refusal{Code: "key_pending", Reason: "the key " + blames[0].Message, Blames: blames}
	}
	return &jobspec.Refusal{
		Code: "key_pending", Reason: fmt.Sprintf("%d keys are those of pending runs; nothing was written", len(blames)),
		Blames: blames,
	}
}

const datedColumns = `d.key, d.run_id, d.due_at, d.created_at, d.latest_at, d.sequence,
	d.expires_after, coalesce(d.triggered_by, '')`

func scanDated(row pgx.CollectableRow) (d DatedRun, err error) {
	var expires *time.Duration
	err = row.Scan(&d.Key, &d.Run, &d.DueAt, &d.CreatedAt, &d.LatestAt, &d.Sequence, &expires, &d.TriggeredBy)
	if expires != nil {
		d.ExpiresAfter = new(jobspec.DurationOf(*expires))
	}
	return d, err
}

// GetDated returns a pending dated run. The error is ErrNotFound if there is none with the key: it may have been
// claimed.
func (s *Jobs) GetDated(ctx context.Context, tenant int32, ref, key string) (DatedRun, error) {
	q := s.db.Callers.Reader(tenant)
	job, err := names.Find(ctx, q, tenant, ref)
	if err != nil {
		return DatedRun{}, err
	}
	return oneDated(key, pg.Query(ctx, q, `
		SELECT `+datedColumns+` FROM punctual.dated d WHERE d.tenant = $1 AND d.job_id = $2 AND d.key = $3`,
		tenant, job, key))
}

func oneDated(key string, rows pgx.Rows) (DatedRun, error) {
	d, err := pgx.CollectExactlyOneRow(rows, scanDated)
	if errors.Is(err, pgx.ErrNoRows) {
		return d, notPending(key)
	}
	return d, pg.Wrap("reading a dated run", err)
}

// CancelDated removes a pending dated run, for a caller who may be a submitter. The error is ErrNotFound if there is
// none with the key: it may have been claimed. It is ErrNotForSubmitters as that of TriggerAt.
func (s *Jobs) CancelDated(ctx context.Context, tenant int32, ref, key string, submitter bool) (d DatedRun, err error) {
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		job, _, err := s.lockToTrigger(ctx, tx, tenant, ref, submitter)
		if err != nil {
			return err
		}
		if d, err = oneDated(key, pg.Query(ctx, tx, `
			DELETE FROM punctual.dated d WHERE d.tenant = $1 AND d.job_id = $2 AND d.key = $3
			RETURNING `+datedColumns, tenant, job.ID, key)); err != nil {
			return err
		}
		return audit.Write(ctx, tx, tenant, audit.Change{
			Action: audit.RunCancel, ID: d.Run, Job: job.ID, Name: job.Definition.Name,
			Before: runs.DatedShot{Key: d.Key, DueAt: d.DueAt.UTC()},
		})
	})
	return d, err
}

const moveDated = `
	WITH old AS MATERIALIZED (
	    SELECT key, run_id, due_at FROM punctual.dated WHERE tenant = $1 AND job_id = $2 AND key = $3 FOR UPDATE),
	moved AS (
	    UPDATE punctual.dated d
	    SET due_at = least($4, d.latest_at), run_id = punctual.run_id_at(least($4, d.latest_at)), lane = $5,
	        sequence = coalesce($6, d.sequence)
	    FROM old
	    WHERE d.job_id = $2 AND d.key = old.key AND (d.sequence IS NULL OR $6::bigint IS NULL OR $6 > d.sequence)
	    RETURNING d.key, d.run_id, d.due_at)
	SELECT old.key, coalesce(m.run_id, old.run_id), coalesce(m.due_at, old.due_at), m.key IS NOT NULL, old.due_at
	FROM old
	LEFT JOIN moved m ON m.key = old.key`

// MoveDated moves the pending dated run with the key of a request to the request's instant, though not beyond its
// LatestAt, and leaves all else of it as it is. If its sequence is as high as the request's, it stays where it is. The
// error is ErrNotFound if there is none with the key: it may have been claimed. Other errors are those of TriggerAt.
func (s *Jobs) MoveDated(ctx context.Context, tenant int32, ref string, r DateRequest) (w Dated, err error) {
	err = s.db.Callers.InTx(ctx, tenant, func(tx *pg.Tx) error {
		job, now, err := s.lockToTrigger(ctx, tx, tenant, ref, r.Submitter)
		if err != nil {
			return err
		}
		due := r.due(now)
		if err := jobspec.Invalid(r.misdated(due, now)); err != nil {
			return err
		}
		var before time.Time
		err = tx.QueryRow(ctx, moveDated, tenant, job.ID, r.Key, due, job.lane, r.Sequence).
			Scan(&w.Key, &w.Run, &w.DueAt, &w.Replaced, &before)
		if errors.Is(err, pgx.ErrNoRows) {
			return notPending(r.Key)
		}
		if err != nil || !w.Replaced {
			return pg.Wrap("moving a dated run", err)
		}
		if w.DueAt.Before(now.Add(pg.Soon)) {
			tx.Wake()
		}
		return audit.Write(ctx, tx, tenant, audit.Change{
			Action: audit.RunMove, ID: w.Run, Job: job.ID, Name: job.Definition.Name,
			Before: runs.DatedShot{Key: w.Key, DueAt: before.UTC()}, After: runs.DatedShot{Key: w.Key, DueAt: w.DueAt},
		})
	})
	return w, err
}

func notPending(key string) error {
	return fmt.Errorf("no dated run with the key %.80q is pending; it may have been claimed: %w", key, pg.ErrNotFound)
}

// SequencesKept is for how long a sequence guards its key once the run that had it was claimed or cancelled.
const SequencesKept = 24 * time.Hour

// DatedRange is a part of a job's pending dated runs, the soonest first.
type DatedRange struct {
	From, To *time.Time // nil: no bound; To is not included
	pg.Page
}

var listOfDated = pg.Listed[DatedRun]{
	What: "dated runs", Letter: 'D', ID: `d.run_id`, Soonest: true, Of: func(d DatedRun) uuid.UUID { return d.Run },
	Scan: scanDated,
}

// ListDated returns pending dated runs of a job.
func (s *Jobs) ListDated(ctx context.Context, tenant int32, ref string, r DatedRange) ([]DatedRun, string, error) {
	q := s.db.Callers.Reader(tenant)
	job, err := names.Find(ctx, q, tenant, ref)
	if err != nil {
		return nil, "", err
	}
	var c pg.Conditions
	c.Add(`d.tenant = ? AND d.job_id = ?`, tenant, job)
	if r.From != nil {
		c.Add(`d.run_id >= ?`, domain.FirstRunID(*r.From))
	}
	if r.To != nil {
		c.Add(`d.run_id < ?`, domain.FirstRunID(*r.To))
	}
	return listOfDated.Page(ctx, q, r.Page, `SELECT `+datedColumns+` FROM punctual.dated d`, c)
}

// encodeHeaders returns headers as JSON; nil: none are given.
func encodeHeaders(headers map[string]string) ([]byte, error) {
	if headers == nil {
		return nil, nil
	}
	text, err := json.Marshal(headers)
	return text, pg.Wrap("encoding headers", err)
}
