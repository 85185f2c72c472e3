package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/pg"
)

const (
	page    = 500         // how many runs are read at a time
	reading = time.Minute // how long that may take
)

// errNotOver says that a run of the day has not ended, so that the day is not dropped yet.
var errNotOver = errors.New("a run of the day has not ended")

// part is a day, or a further part of it, that is archived.
type part struct {
	day  time.Time
	part int
}

// name stands for %d.
func (p part) name() string {
	if p.part > 1 {
		return fmt.Sprintf("%s.%d", p.day.Format(time.DateOnly), p.part)
	}
	return p.day.Format(time.DateOnly)
}

// export writes the archive of a day.
func (a *Archives) export(ctx context.Context, p part, to io.Writer) (*writer, error) {
	h := header{
		Format: format, Day: p.day.Format(time.DateOnly), Part: p.part, TimeZone: "UTC", Version: a.options.Version,
	}
	if err := a.db.Chores.QueryRow(ctx, `SELECT id, current_database() FROM punctual.deployment`).
		Scan(&h.Deployment, &h.Database); err != nil {
		return nil, fmt.Errorf("reading the deployment: %w", err)
	}
	w := newWriter(to)
	if err := w.line(h); err != nil {
		return nil, err
	}
	after, written := uuid.Nil, map[versionRef]bool{}
	for {
		limited, cancel := context.WithTimeout(ctx, reading) // it may hang at a row, and other days wait
		rows, versions, err := a.read(limited, p.day, after, written)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, v := range versions {
			w.Versions++
			if err := w.line(line{Version: v}); err != nil {
				return nil, err
			}
		}
		for _, r := range rows {
			w.Runs, w.Attempts = w.Runs+1, w.Attempts+int64(len(r.Attempts))
			if r.Data != nil {
				w.Data++
			}
			if err := w.line(r.line); err != nil {
				return nil, err
			}
			after = r.id
		}
		if len(rows) < a.page {
			return w, w.end()
		}
	}
}

// versionRef is a version of a job that runs name.
type versionRef struct {
	job     uuid.UUID
	version int32
}

// row is a run as it was read.
type row struct {
	id uuid.UUID
	versionRef
	line
}

// bounds are the first run ids of a day and of the next one.
func bounds(day time.Time) (from, below uuid.UUID) {
	return domain.FirstRunID(day), domain.FirstRunID(day.AddDate(0, 0, 1))
}

// Scalar subqueries for each run keep the plan on the primary keys, whatever the planner knows of the day.
var selectRuns = `
SELECT r.id, r.job_id, r.job_version, r.finished_at IS NOT NULL, coalesce(j.name, ''), coalesce(t.name, ''),
       to_json(r)::text,
       coalesce((SELECT array_agg(to_json(a)::text ORDER BY a.fence) FROM punctual.attempts a
                 WHERE a.run_id = r.id AND a.run_id >= $1 AND a.run_id < $2), '{}'),
       CASE WHEN d.run_id IS NOT NULL THEN (
           SELECT to_json(x)::text
           FROM (SELECT d.run_id, ` + each(plainColumns, "d.%") + `, ` + each(textColumns, "d.%::text AS %") + `) x)
       END, d.body
FROM (SELECT * FROM punctual.runs r
      WHERE r.id > $3 AND r.id >= $1 AND r.id < $2 ORDER BY r.id LIMIT $4) r
LEFT JOIN punctual.run_data d ON d.run_id = r.id AND d.run_id >= $1 AND d.run_id < $2
LEFT JOIN punctual.jobs j ON j.id = r.job_id
LEFT JOIN punctual.tenants t ON t.id = r.tenant
ORDER BY r.id`

// read returns the runs of a day after one, and the versions of jobs that they name and that were not written yet.
func (a *Archives) read(
	ctx context.Context, day time.Time, after uuid.UUID, written map[versionRef]bool,
) (rows []row, versions []json.RawMessage, err error) {
	from, below := bounds(day)
	err = a.db.Chores.ReadOnly(ctx, pg.Everybody, func(tx pgx.Tx) error {
		if err := pg.Exec(ctx, tx, `SET LOCAL TimeZone = 'UTC'`); err != nil {
			return err
		}
		if rows, err = pg.All(ctx, tx, scanRow, selectRuns, from, below, after, a.page); err != nil {
			return err
		}
		var jobs []uuid.UUID
		var numbers []int32
		for _, r := range rows {
			if !written[r.versionRef] {
				written[r.versionRef] = true
				jobs, numbers = append(jobs, r.job), append(numbers, r.version)
			}
		}
		versions, err = pg.All(ctx, tx, pgx.RowTo[json.RawMessage], `
			SELECT to_json(x)::text FROM (
			    SELECT v.job_id, v.version, v.valid_from, v.state, v.definition::text AS definition, v.note, v.tenant, v.event,
			           v.rerun_at
			    FROM unnest($1::uuid[], $2::int[]) u(job_id, version)
			    JOIN punctual.job_versions v ON v.job_id = u.job_id AND v.version = u.version
			    ORDER BY v.job_id, v.version) x`, jobs, numbers)
		return err
	})
	return rows, versions, pg.Wrap("reading the runs of "+day.Format(time.DateOnly), err)
}

func scanRow(from pgx.CollectableRow) (r row, err error) {
	var ended bool
	var run string
	var attempts []string
	var data *string
	var body []byte
	if err = from.Scan(&r.id, &r.job, &r.version, &ended, &r.Job, &r.Tenant, &run, &attempts, &data,
		&body); err != nil {
		return r, err
	}
	if !ended {
		return r, errNotOver
	}
	r.Run = json.RawMessage(run)
	r.Attempts = pg.Column(attempts, func(text string) json.RawMessage { return json.RawMessage(text) })
	if data != nil {
		r.Data = json.RawMessage(*data)
	}
	switch {
	case body == nil:
	case utf8.Valid(body) && bytes.IndexByte(body, 0) < 0: // Postgres has no texts with a zero
		r.Body = new(string(body))
	default:
		r.BodyBase64 = body
	}
	return r, nil
}
