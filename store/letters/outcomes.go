package letters

import (
	"context"
	"encoding/json"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// RunOutcomes says what became of the runs that an operation made.
type RunOutcomes struct {
	Runs int64 `json:"runs" maximum:"1000" doc:"How many of its runs were counted: the first 1,000, in a list the first 100; and of a backfill only those among the 10,000 (1,000) first runs of backfills in its range of slots. Runs that are no longer kept are not counted." example:"350"`
	runs.Outcomes
}

// Of how many runs of an operation the outcomes are counted, where it is read alone and in a list: a page shows them
// every two seconds.
const (
	mostOutcomes       = 1_000
	mostListedOutcomes = 100
)

// lookThrough is how many runs of backfills are looked through for each that is counted.
const lookThrough = 10

// A backfill is not on the row of its runs. They are those of its job that were made while it worked.
const (
	replaysMade = `
		SELECT r.status, count(*) FROM punctual.runs_of(ARRAY(
			SELECT d.replayed_as FROM punctual.dead_letters d WHERE d.replayed_by = $1 ORDER BY d.run_id LIMIT $2)) r
		GROUP BY r.status`
	backfillsMade = `
		SELECT m.status, count(*) FROM (
			SELECT r.status FROM (
				SELECT * FROM punctual.runs r
				WHERE r.tenant = $1 AND r.trigger = 'backfill' AND r.id >= $2 AND r.id < $3
				ORDER BY r.id LIMIT $4) r
			WHERE r.job_id = $5 AND r.created_at >= $6 AND ($7::timestamptz IS NULL OR r.created_at <= $7)
			ORDER BY r.id LIMIT $8) m
		GROUP BY m.status`
)

// outcomes counts what became of the first runs that an operation made. It is nil for one that makes no runs.
func (o Operation) outcomes(ctx context.Context, q pg.Querier, tenant int32, most int64) (*RunOutcomes, error) {
	var found RunOutcomes
	switch o.Kind {
	case OperationReplay:
		if err := found.count(ctx, q, replaysMade, o.ID, most); err != nil {
			return nil, err
		}
	case OperationBackfill:
		var slots struct{ From, To time.Time }
		_ = json.Unmarshal(o.Request, &slots) // it was written here
		end, err := pg.Clock(ctx, q)
		if err != nil {
			return nil, err
		}
		if o.FinishedAt != nil {
			end = *o.FinishedAt
		}
		// A run of a slot has an id of its slot, and another run of it one of its creation.
		for _, span := range [][2]time.Time{{slots.From, slots.To}, {o.CreatedAt, end.Add(time.Second)}} {
			if err := found.count(ctx, q, backfillsMade, tenant, domain.FirstRunID(span[0]), domain.FirstRunID(span[1]),
				most*lookThrough, o.JobID, o.CreatedAt, o.FinishedAt, max(most-found.Runs, 0)); err != nil {
				return nil, err
			}
		}
	default:
		return nil, nil //nolint:nilnil // it makes no runs
	}
	found.Rate()
	return &found, nil
}

// count adds what a statement finds.
func (f *RunOutcomes) count(ctx context.Context, q pg.Querier, statement string, args ...any) error {
	counts, err := pg.Map[domain.Status, int64](ctx, q, statement, args...)
	if err != nil {
		return pg.Wrap("counting the outcomes of an operation", err)
	}
	for status, n := range counts {
		f.Runs += n
		f.Add(status, n)
	}
	return nil
}
