package history

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

// A definition may be a megabyte; slots need a few fields of it. Only delays are compared as a whole: a change to any
// part of the definition arms a delay again.
const selectVersions = `
SELECT v.job_id, v.version, v.valid_from, v.state, coalesce((v.definition -> 'schedule')::text, '{}'),
       coalesce(v.definition ->> 'jitter', ''),
       CASE WHEN v.definition #>> '{schedule,delay}' IS NOT NULL THEN md5(v.definition::text) ELSE '' END,
       coalesce(v.note, '')
FROM punctual.job_versions v
WHERE v.job_id = ANY($1::uuid[])
ORDER BY v.job_id, v.version`

// eachVersion visits the versions of jobs, sorted by job and version. broken says why a version cannot be read.
func eachVersion(
	ctx context.Context, q pg.Querier, jobs []uuid.UUID, visit func(id uuid.UUID, v domain.Version, broken error),
) error {
	rows := pg.Query(ctx, q, selectVersions, jobs)
	var id uuid.UUID
	var v domain.Version
	var schedule, jitter string
	_, err := pgx.ForEachRow(rows, []any{
		&id, &v.Number, &v.From, &v.State, &schedule, &jitter, &v.Digest, &v.Note,
	}, func() error {
		v.Schedule, v.Jitter = jobspec.Schedule{}, jobspec.Duration{}
		broken := json.Unmarshal([]byte(schedule), &v.Schedule)
		if broken != nil {
			broken = fmt.Errorf("version %d: its schedule: %w", v.Number, broken)
		}
		if jitter != "" {
			_ = v.Jitter.UnmarshalText([]byte(jitter)) // never fails
		}
		visit(id, v, broken)
		return nil
	})
	return pg.Wrap("reading the versions of jobs", err)
}
