package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/history"
)

// Verified returns the result of verify for the last 48 hours: a line per violation, and the summary.
func (c Fixture) Verified(change ...func(*history.VerifyOptions)) ([]string, history.VerifySummary) {
	c.T.Helper()
	lines := []string{}
	now := time.Now()
	o := history.VerifyOptions{From: now.Add(-48 * time.Hour), To: now.Add(time.Hour)}
	o.Report = func(v history.Violation) error {
		line := fmt.Sprintf("%s %s", v.Kind, v.Job)
		if v.Kind == history.ViolationOverdue || v.Kind == history.ViolationCount || v.Kind == history.ViolationDouble {
			line += fmt.Sprintf(" x%d", v.Count)
		}
		lines = append(lines, line)
		return nil
	}
	for _, f := range change {
		f(&o)
	}
	summary, err := c.History.Verify(c.T.Context(), o)
	Must(c.T, err)
	if summary.Violations != len(lines) {
		c.T.Errorf("%d violations in the summary, %d reported", summary.Violations, len(lines))
	}
	return lines, summary
}

// PartitionsBack makes the partitions of the last days.
func (c Fixture) PartitionsBack(days int) {
	c.T.Helper()
	c.Exec(`SELECT punctual.create_partitions(
		(now() AT TIME ZONE 'UTC')::date - $1::int, (now() AT TIME ZONE 'UTC')::date)`, days)
}

// Lived writes an hourly job of five hours ago and returns its five slots, whose runs all succeeded.
func (c Replica) Lived(name string, options ...Option) (job uuid.UUID, slots []time.Time) {
	c.T.Helper()
	c.PartitionsBack(2)
	made := c.Create(name, append([]Option{HalfPast}, options...)...)
	for n := range 5 {
		at := made.NextScheduledFor.Add(time.Duration(n-5) * time.Hour)
		slots = append(slots, at)
		c.RanAt(made.ID, domain.SlotRunID(made.ID, at), at)
	}
	c.Exec(`UPDATE punctual.job_versions SET valid_from = $2 WHERE job_id = $1`, made.ID, slots[0].Add(-59*time.Minute))
	return made.ID, slots
}

// RanAt writes a run of a slot that has succeeded.
func (c Fixture) RanAt(job, id uuid.UUID, slot time.Time) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, tenant, job_version, lane,
			attempt, status, trigger, fence)
		VALUES ($1, $2, $3, $3, now(), $4, 1, 5, 1, 'succeeded', 'schedule', nextval('punctual.fences'))`,
		id, job, slot, c.Tenant)
}

// SkippedAt writes a skip of slots.
func (c Fixture) SkippedAt(job uuid.UUID, first, last time.Time, count any) {
	c.T.Helper()
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			skipped_count, tenant, job_version, lane, status, reason, trigger)
		VALUES ($1, $2, $4, $4, now(), $3, $4, $5, $6, 1, 5, 'skipped', 'missed', 'schedule')`,
		domain.NewRunID(time.Now()), job, first, last, count, c.Tenant)
}

// Explained asks explain about an instant of a job.
func (c Fixture) Explained(ref string, at time.Time) history.Explanation {
	c.T.Helper()
	e, err := c.History.ExplainJob(
		c.T.Context(), c.Tenant, ref, func(*time.Location) (time.Time, error) { return at, nil },
	)
	Must(c.T, err)
	if e.Text == "" || !strings.HasSuffix(e.Text, ".") || strings.Contains(e.Text, "%!") {
		c.T.Errorf("explanation %q", e.Text)
	}
	return e
}

// Pick returns one of several values.
func Pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
