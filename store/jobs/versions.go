package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/runs"
)

// A version is valid until the next one. The query walks through versions, and for each one looks at the version before
// it. That version is deleted unless
//
//   - it armed a delay that the next one did not arm again: the slot follows from when the version was written;
//   - it is the last pause, or the version that ended the last pause: see stale.go;
//   - a run names it. Runs that succeeded are gone by then. A run under a version is made while the version is valid,
//     so only earlier days are searched. Backfills are the exception: they go on under the version they began with.
//     Reruns are another, and note it on the version.
//
// Runs are searched once per job and not per version, because there may be many of both, and beforehand: see named.
const oldVersions = `
WITH later AS MATERIALIZED (
    SELECT v.job_id, v.version, v.valid_from FROM punctual.job_versions v
    WHERE v.version > 1 AND v.valid_from < $4 AND v.valid_from >= $1 AND (v.valid_from, v.job_id) > ($1, $2)
    ORDER BY v.valid_from, v.job_id LIMIT $3),
old AS MATERIALIZED (
    SELECT p.job_id, p.version FROM later l
    JOIN punctual.job_versions v ON v.job_id = l.job_id AND v.version = l.version
    CROSS JOIN LATERAL (
        SELECT * FROM punctual.job_versions p
        WHERE p.job_id = l.job_id AND p.version < l.version
        ORDER BY p.version DESC LIMIT 1) p
    WHERE (p.rerun_at IS NULL OR p.rerun_at < $4)
      AND (p.definition #>> '{schedule,delay}' IS NULL
           OR v.state <> 'completed' AND v.definition::text <> p.definition::text)
      AND (p.state <> 'paused' OR EXISTS (SELECT FROM punctual.job_versions n
              WHERE n.job_id = p.job_id AND n.version > p.version AND n.state = 'paused'))
      AND NOT EXISTS (SELECT FROM punctual.job_versions b
              WHERE b.job_id = p.job_id AND b.version = p.version - 1 AND b.state = 'paused'
                AND NOT EXISTS (SELECT FROM punctual.job_versions n
                    WHERE n.job_id = b.job_id AND n.version > b.version AND n.state = 'paused')))`

const forgetVersions = oldVersions + `,
backfilled AS MATERIALIZED (
    SELECT o.job_id FROM punctual.operations o WHERE o.kind = 'backfill' AND coalesce(o.finished_at, 'infinity') >= $4),
gone AS (
    DELETE FROM punctual.job_versions d USING old o
    WHERE d.job_id = o.job_id AND d.version = o.version
        AND NOT EXISTS (SELECT FROM unnest($5::uuid[], $6::int[]) n(job_id, job_version)
                        WHERE n.job_id = o.job_id AND n.job_version = o.version)
        AND o.job_id NOT IN (SELECT job_id FROM backfilled WHERE job_id IS NOT NULL)
    RETURNING d.job_id, d.version, d.definition)
SELECT (SELECT count(*) FROM later), (SELECT count(*) FROM gone),
       coalesce((SELECT l.valid_from FROM later l ORDER BY l.valid_from DESC, l.job_id DESC LIMIT 1), $1),
       coalesce((SELECT l.job_id FROM later l ORDER BY l.valid_from DESC, l.job_id DESC LIMIT 1), $2),
       array(SELECT g.job_id FROM gone g CROSS JOIN LATERAL ` + sealedIn + ` ORDER BY g.job_id, g.version),
       array(SELECT g.version FROM gone g CROSS JOIN LATERAL ` + sealedIn + ` ORDER BY g.job_id, g.version),
       array(SELECT x.id::uuid FROM gone g CROSS JOIN LATERAL ` + sealedIn + ` ORDER BY g.job_id, g.version)`

// sealedIn selects the ids of the sealed values in a definition. It may select more, because a body may contain text
// that looks like a sealed value.
const sealedIn = `(
	SELECT m[1] AS id
	FROM regexp_matches(g.definition::text, '"sealed"\s*:\s*"([0-9a-f-]{36})"', 'g') m) x`

// A sealed value is kept from one version to the next, and does not return once it is dropped. So it is still in use
// only if the nearest version on either side has it.
const forgetSealed = `
DELETE FROM punctual.job_secrets s USING unnest($1::uuid[], $2::int[], $3::uuid[]) AS u(job_id, version, id)
WHERE s.job_id = u.job_id AND s.id = u.id
  AND NOT EXISTS (SELECT FROM (SELECT v.definition FROM punctual.job_versions v
          WHERE v.job_id = u.job_id AND v.version > u.version ORDER BY v.version LIMIT 1) v
      WHERE position(u.id::text IN v.definition::text) > 0)
  AND NOT EXISTS (SELECT FROM (SELECT v.definition FROM punctual.job_versions v
          WHERE v.job_id = u.job_id AND v.version < u.version ORDER BY v.version DESC LIMIT 1) v
      WHERE position(u.id::text IN v.definition::text) > 0)`

// ForgetVersions deletes versions that ceased to be valid before the retention began and that no run names. It also
// deletes the secrets that only these versions have.
func (s *Jobs) ForgetVersions(ctx context.Context) (forgotten int, left bool, err error) {
	// Verify and the explanations of slots begin with the oldest day that is kept as a whole, whatever the retention is.
	var before time.Time
	err = s.db.Chores.QueryRow(ctx, `
		SELECT least(now() - $1::interval, `+days.KeptSince+`) - interval '1 day'`, s.options.Retention).Scan(&before)
	if err != nil {
		return 0, false, fmt.Errorf("looking for the oldest day: %w", err)
	}
	w := &s.walks.passed
	return s.pass(ctx, w, "forgetting old versions of jobs", func(ctx context.Context) (found, gone int, err error) {
		return s.forgetVersions(ctx, w, before)
	})
}

// named returns which versions the runs of earlier days name, of the jobs that have versions to forget.
func (s *Jobs) named(ctx context.Context, w *walk, before time.Time) (jobs []uuid.UUID, versions []int32, err error) {
	of, err := pg.All(ctx, s.db.Chores, pgx.RowTo[uuid.UUID],
		oldVersions+`SELECT DISTINCT job_id FROM old`, w.at, w.id, pg.ForgetBatch, before)
	if err != nil || len(of) == 0 {
		return nil, nil, err
	}
	search := days.Search{Index: days.All, Until: before.Add(runs.ClockSlack)}
	err = search.Forth(ctx, s.db.Chores, func(ctx context.Context, q pg.Querier, w days.Window) (bool, error) {
		rows := pg.Query(ctx, q, `
			SELECT j.job_id, r.job_version FROM unnest($1::uuid[]) j(job_id)
			CROSS JOIN LATERAL (
			    SELECT DISTINCT r.job_version FROM punctual.runs r WHERE r.job_id = j.job_id AND `+w.On(`r.id`)+`) r`, of)
		return false, pg.Each2(rows, func(job uuid.UUID, version int32) {
			jobs, versions = append(jobs, job), append(versions, version)
		})
	})
	return jobs, versions, err
}

func (s *Jobs) forgetVersions(ctx context.Context, w *walk, before time.Time) (found, gone int, err error) {
	of, named, err := s.named(ctx, w, before)
	if err != nil {
		return 0, 0, err
	}
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := pg.Exec(ctx, tx, pg.ByIndex); err != nil {
			return err
		}
		var jobs, sealed []uuid.UUID
		var versions []int32
		row := tx.QueryRow(ctx, forgetVersions, w.at, w.id, pg.ForgetBatch, before, of, named)
		if err := row.Scan(&found, &gone, &w.at, &w.id, &jobs, &versions, &sealed); err != nil || len(sealed) == 0 {
			return err
		}
		return pg.Exec(ctx, tx, forgetSealed, jobs, versions, sealed)
	})
	return found, gone, err
}
