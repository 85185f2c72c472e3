package letters

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/seal"
)

const (
	replayBatch  = 100
	resolveBatch = 500
)

// marked is a dead letter that belongs to an operation.
type marked struct {
	DeadLetter
	Gated     bool // runs of its job must not overlap
	Forgotten bool // its job no longer exists
}

// workLetters replays or resolves the next dead letters of an operation.
func (o *bulk) workLetters(ctx context.Context, tx *pg.Tx) error {
	letters, err := o.take(ctx, tx)
	if err != nil {
		return err
	}
	if err := o.work(ctx, tx, letters); err != nil {
		return err
	}
	o.made = o.done + o.failed
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM punctual.dead_letters WHERE operation = $1)`, o.id).Scan(&o.left)
	return pg.Wrap("looking for the rest of operation "+o.id.String(), err)
}

// take locks the next dead letters of the operation, oldest slots first. Locked rows are left for later: this
// transaction holds many rows, so it never waits for one. Of a job with a gate at most one replay waits at any time, so
// that the replays keep their order and do not wait at the gate by the thousand.
func (o *bulk) take(ctx context.Context, tx *pg.Tx) ([]marked, error) {
	eligible, most, waits := ``, o.size(resolveBatch), ahead{}
	if o.kind == OperationReplay {
		var err error
		if waits, err = o.looksAhead(ctx, tx); err != nil {
			return nil, err
		}
		most = min(o.size(replayBatch), o.second)
		eligible = ` AND (x.job_id IS NULL OR d.resolved_at IS NOT NULL
			OR NOT EXISTS (SELECT FROM punctual.ready y WHERE y.job_id = d.job_id)
			AND NOT EXISTS (SELECT FROM punctual.runs_of(ARRAY[x.active_run]) r WHERE r.finished_at IS NULL))`
	}
	letters, err := pg.All(ctx, tx, seal.Rows(pgx.RowToStructByPos[marked], "error"), `
		SELECT `+deadLetterColumns+`, x.job_id IS NOT NULL, j.id IS NULL
		FROM `+deadLetterTables+` LEFT JOIN punctual.exclusive x ON x.job_id = d.job_id AND x.gated
		WHERE d.operation = $1 AND (j.id IS NULL OR j.queue <> ALL($3::smallint[]) AND j.id <> ALL($4::uuid[]))`+eligible+`
		ORDER BY d.run_id LIMIT $2 FOR UPDATE OF d SKIP LOCKED`,
		o.id, most, append([]int16{}, waits.queues...), append([]uuid.UUID{}, waits.jobs...))
	return letters, pg.Wrap("reading dead letters", err)
}

// work does the operation's work on the letters that it has locked, and unmarks them.
func (o *bulk) work(ctx context.Context, tx *pg.Tx, letters []marked) error {
	if len(letters) == 0 {
		return nil
	}
	ids := pg.Column(letters, func(m marked) uuid.UUID { return m.RunID })
	switch o.kind {
	case OperationResolve:
		if err := resolveLetters(ctx, tx, ids, o.note); err != nil {
			return err
		}
		o.done = len(ids)
	case OperationReplay:
		var err error
		if ids, err = o.replay(ctx, tx, letters); err != nil {
			return err
		}
	}
	return pg.Wrap("giving up dead letters", pg.Exec(ctx, tx, `
		UPDATE punctual.dead_letters SET operation = NULL WHERE run_id = ANY($1::uuid[])`, ids))
}

// replay replays the letters that can be replayed now. It returns these and the letters that never can be replayed.
func (o *bulk) replay(ctx context.Context, tx *pg.Tx, letters []marked) (over []uuid.UUID, err error) {
	states, now, err := shareJobs(ctx, tx, pg.Column(letters, func(m marked) uuid.UUID { return m.JobID }), forShare)
	if err != nil {
		return nil, err
	}
	var replays []replay
	entered := map[uuid.UUID]bool{}
	for _, m := range letters {
		state, held := states[m.JobID]
		switch {
		case m.ResolvedAt != nil:
			o.fail(m, "was resolved or replayed by another caller in the meantime")
		case m.Forgotten:
			o.fail(m, gone(m.Job))
		case !held || m.Gated && entered[m.JobID]:
			continue // another transaction is changing the job, or another replay of the job goes first
		case state == domain.JobDeleted:
			o.fail(m, gone(m.Job))
		default:
			entered[m.JobID] = true
			replays = append(replays, replay{m.DeadLetter, domain.NewRunID(now), o.by})
		}
		over = append(over, m.RunID)
	}
	if len(replays) > 0 {
		o.done, o.days = len(replays), []time.Time{now}
		err = writeReplays(ctx, tx, replays, now, o.note, &o.id)
	}
	return over, err
}

func (o *bulk) fail(m marked, why string) {
	o.failed++
	o.trouble = fmt.Sprintf("dead letter %s: %s", m.RunID, why)
}

const (
	forShare     = `FOR SHARE`
	forExclusive = `FOR NO KEY UPDATE` // keeps other operations from making runs of the job, too
)

// shareJobs keeps jobs from being deleted, and returns the state of each. It leaves out jobs that another transaction
// is changing.
func shareJobs(
	ctx context.Context, tx *pg.Tx, jobs []uuid.UUID, lock string,
) (map[uuid.UUID]domain.JobState, time.Time, error) {
	slices.SortFunc(jobs, pg.CompareIDs)
	states, err := pg.Map[uuid.UUID, domain.JobState](ctx, tx, `
		SELECT id, state FROM punctual.jobs
		WHERE id = ANY($1::uuid[]) ORDER BY id `+lock+` SKIP LOCKED`, slices.Compact(jobs))
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("locking jobs: %w", err)
	}
	now, err := pg.Clock(ctx, tx)
	return states, now, err
}
