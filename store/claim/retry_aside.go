package claim

import (
	"context"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/pg"
)

// gone is SQL, by kind, that is true if an item that was set aside ($1, of the job $2) is to be done no more: it was
// done otherwise, paused or deleted.
var gone = map[aside.Kind]string{
	aside.Slot: `NOT EXISTS (
		SELECT FROM punctual.schedules WHERE job_id = $1 AND enabled AND next_run_at <= now() AND $2::uuid IS NOT NULL)`,
	aside.Run: `NOT EXISTS (SELECT FROM punctual.ready WHERE run_id = $1)
		AND NOT EXISTS (SELECT FROM punctual.dated WHERE job_id = $2 AND run_id = $1)`,
	aside.Outcome: `NOT EXISTS (
		SELECT FROM punctual.runs_of(ARRAY[$1::uuid]) r WHERE r.finished_at IS NULL AND $2::uuid IS NOT NULL)`,
}

// TryAside tries again, by itself, what was set aside. A slot or a run is claimed by the tick loop.
func (s *Claims) TryAside(ctx context.Context, i aside.Item) error {
	var over bool // what cannot be read is there
	limited, cancel := context.WithTimeout(ctx, aside.Part)
	defer cancel()
	if err := s.db.Chores.QueryRow(limited, `SELECT `+gone[i.Kind], i.ID, i.Job).Scan(&over); err == nil && over {
		s.aside.Done(ctx, i.Kind, i.ID)
		return nil
	}
	switch one := []uuid.UUID{i.ID}; i.Kind {
	case aside.Slot:
		s.sieves.due.add(one)
		s.db.Wake()
	case aside.Run:
		s.sieves.ready.add(one)
		s.sieves.silent.add(one)
		s.db.Wake()
		s.db.Ask(ChoreSilent)
	case aside.Outcome: // of which no replica has the outcome any more
		n, err := s.endRunning(ctx, s.db.Chores, ofNoClaim, nil, one)
		if n > 0 {
			s.aside.Done(ctx, i.Kind, i.ID)
		}
		return pg.Wrap("ending an attempt that was set aside", err)
	}
	return nil
}

// Bury ends a running attempt, of which nothing else can be written, as the last one: the run is dead, with the reason
// poison.
func (s *Claims) Bury(ctx context.Context, run uuid.UUID) error {
	held, err := readRunning(ctx, s.db.Callers, ofAnybody, nil, []uuid.UUID{run})
	if err != nil || len(held.runs) == 0 {
		return err
	}
	_, _, err = s.end(ctx, s.db.Callers, held, func(r claimedRun, now time.Time) domain.Outcome {
		return domain.JudgeLost(r.Assignment, 2, r.started, now)
	})
	return pg.Wrap("ending an attempt that was dropped", err)
}

// ofAnybody are running attempts, whoever holds them.
const ofAnybody = `punctual.runs r
CROSS JOIN (SELECT NULL::uuid AS id WHERE $1::uuid[] IS NULL) c
WHERE r.id = ANY($2::uuid[]) AND r.status = 'running'`
