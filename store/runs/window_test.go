package runs_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/pg"
	"punctual/store/runs"
)

// A list between two instants has the runs whose slots lie between them and the skips that touch the time between them,
// whenever they were made, newest first, each once, whatever the length of its pages.
func TestAListBetweenTwoInstantsIsComplete(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("a")
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	now := c.Clock().Truncate(time.Minute)
	// Instants within 20 hours before now, in steps that put some of them at the bounds.
	instant := func(after time.Time) time.Time {
		left := int(now.Sub(after) / (30 * time.Second))
		return after.Add(time.Duration(random.IntN(left+1)) * 30 * time.Second)
	}
	oldest := now.Add(-20 * time.Hour)
	near := func(at time.Time) time.Time { return at.Add(time.Duration(random.IntN(100)) * time.Second) }
	var slots []time.Time
	add := func(id uuid.UUID, slot, made time.Time, first, last *time.Time, trigger domain.Trigger) {
		c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, created_at, finished_at, skipped_first,
				skipped_last, tenant, job_version, lane, status, reason, trigger)
			VALUES ($1, $2, $3, $3, $4, $4, $5, $6, $7, 1, $8, CASE WHEN $5::timestamptz IS NULL THEN 'succeeded'
				ELSE 'skipped' END, CASE WHEN $5::timestamptz IS NULL THEN NULL ELSE 'paused' END, $9)
			ON CONFLICT DO NOTHING`,
			id, job.ID, slot, made, first, last, c.Tenant, c.Queue*4+1, trigger)
	}
	c.Exec(`SELECT punctual.create_partitions($1::date - 2, $1::date)`, now)
	for range 150 {
		slot := instant(oldest)
		slots = append(slots, slot)
		made := near(slot)
		if random.IntN(2) == 0 {
			made = instant(slot)
		}
		switch random.IntN(5) {
		case 0:
			add(domain.SlotRunID(job.ID, slot), slot, made, nil, nil, domain.TriggerCatchup)
		case 1:
			add(domain.NewRunID(slot), slot, slot, nil, nil, domain.TriggerManual)
		case 2:
			add(domain.NewRunID(made), slot, made, nil, nil, domain.TriggerReplay)
		case 3:
			add(domain.NewRunID(made), slot, made, &slot, &slot, domain.TriggerSchedule)
		case 4:
			last := instant(slot)
			made = instant(last)
			add(domain.NewRunID(made), last, made, &slot, &last, domain.TriggerSchedule)
		}
	}
	for range 30 {
		to := near(slots[random.IntN(len(slots))])
		from := to.Add(-time.Duration(random.IntN(600)) * time.Minute)
		want := Column[uuid.UUID](c.Fixture, `SELECT id
			FROM punctual.runs
			WHERE coalesce(skipped_last, scheduled_for) >= $1 AND coalesce(skipped_first, scheduled_for) < $2
			ORDER BY id DESC`, from, to)
		var got []uuid.UUID
		f := runs.Filter{From: &from, To: &to, Page: pg.Page{Limit: 1 + random.IntN(20)}}
		for more := true; more; more = f.Cursor != "" {
			var page []runs.Run
			var err error
			if page, f.Cursor, err = c.Runs.ListRuns(t.Context(), c.Tenant, f); err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				got = append(got, r.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("from %v to %v in pages of %d: %v, want %v (seed %d)", from, to, f.Limit, got, want, seed)
		}
	}
}
