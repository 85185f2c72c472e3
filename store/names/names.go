// Package names finds jobs by what callers call them: an id, a name, or labels.
package names

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// Lane is SQL for the lane of a job j that is joined with its row s of schedules, if it has one (LEFT JOIN). The
// definition is in the row v of job_versions.
const Lane = `coalesce(s.lane, punctual.lane_of(j.queue, v.definition))`

// Find returns the id of the job that ref means. It locks nothing: a caller that locks looks again.
func Find(ctx context.Context, q pg.Querier, tenant int32, ref string) (uuid.UUID, error) {
	if id, ok := pg.ParseID(ref); ok {
		return id, nil
	}
	found, err := FindAll(ctx, q, tenant, []string{ref})
	if err != nil {
		return uuid.Nil, err
	}
	job, ok := found[ref]
	if !ok {
		return uuid.Nil, fmt.Errorf("job %q: %w", ref, pg.ErrNotFound)
	}
	return job.ID, nil
}

// Job is the job that a name means.
type Job struct {
	ID       uuid.UUID
	State    domain.JobState
	Schedule jobspec.Schedule
}

// FindAll returns the jobs that the names mean: the active or paused job, or else the newest completed one.
func FindAll(ctx context.Context, q pg.Querier, tenant int32, names []string) (map[string]Job, error) {
	rows := pg.Query(ctx, q, `
		SELECT w.name, f.id, f.state, coalesce((v.definition -> 'schedule')::text, '{}')
		FROM unnest((SELECT $2::text[])) w(name)
		CROSS JOIN LATERAL (
			SELECT c.id, c.state, c.version FROM (
				(SELECT j.id, punctual.job_state(j, s) AS state, j.version
				 FROM punctual.jobs j
				 LEFT JOIN punctual.schedules s ON s.job_id = j.id
				 WHERE j.tenant = $1 AND j.name = w.name AND j.named)
				UNION ALL
				(SELECT id, 'completed', version FROM punctual.jobs
				 WHERE tenant = $1 AND name = w.name AND NOT named AND state <> 'deleted' ORDER BY id DESC LIMIT 1)
			) c ORDER BY c.state = 'completed', c.id DESC LIMIT 1
		) f
		JOIN punctual.job_versions v ON v.job_id = f.id AND v.version = f.version`, pg.Prepared{}, tenant, names)
	found := make(map[string]Job, len(names))
	var name, schedule string
	var job Job
	_, err := pgx.ForEachRow(rows, []any{&name, &job.ID, &job.State, &schedule}, func() error {
		job.Schedule = jobspec.Schedule{}
		if err := json.Unmarshal([]byte(schedule), &job.Schedule); err != nil {
			return fmt.Errorf("job %s: its schedule: %w", job.ID, err)
		}
		found[name] = job
		return nil
	})
	return found, pg.Wrap("looking for jobs by name", err)
}

// SelectLabels selects jobs that have all of the labels.
func SelectLabels(c *pg.Conditions, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	text, err := EncodeLabels(labels)
	if err != nil {
		return fmt.Errorf("encoding labels: %w", err)
	}
	c.Add(`j.labels <> '{}' AND j.labels @> ?::jsonb`, text) // the first condition is the index's
	return nil
}

// EncodeLabels returns labels as a job's row holds them.
func EncodeLabels(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "{}", nil
	}
	b, err := json.Marshal(labels)
	return string(b), err
}
