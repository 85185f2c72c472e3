// Package limits keeps the limits that jobs share by name. Package claim obeys them: see claim/limits.go.
package limits

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/claim"
	"punctual/store/names"
	"punctual/store/pg"
)

// Limits are the limits of all tenants. Safe for concurrent use.
type Limits struct{ db *pg.Pool }

// New returns the limits of a database.
func New(db *pg.Pool) *Limits { return &Limits{db} }

// Settings are what a caller sets of a limit: at least one of the two.
type Settings struct {
	MaxRunning         *int `json:"max_running" minimum:"1" maximum:"100000" doc:"How many runs may hold it at once, of all jobs that name it. Null: no bound." example:"1"`
	MaxStartsPerSecond *int `json:"max_starts_per_second" minimum:"1" maximum:"100000" doc:"How many runs may start in a second, of all jobs that name it. Null: no bound." example:"5"`
}

// Limit is a limit with what goes on at it.
type Limit struct {
	Name string `json:"name" doc:"The name that definitions use for it." example:"warehouse"`
	Settings
	Running   int       `json:"running" doc:"Runs that hold it: from their first start to their end, through retries and work after a 202." example:"1"`
	Waiting   int       `json:"waiting" maximum:"10000" doc:"Runs that wait at it. 10000: 10,000 or more." example:"3"`
	HeldBy    []Holder  `json:"held_by" doc:"The runs that hold it, the longest first; at most ten."`
	Jobs      int       `json:"jobs" doc:"Jobs that name it." example:"2"`
	CreatedAt time.Time `json:"created_at" doc:"When it was created."`
	UpdatedAt time.Time `json:"updated_at" doc:"When it was last changed."`
}

// Holder is a run that holds a limit.
type Holder struct {
	Run   uuid.UUID `json:"run" format:"uuid" doc:"The run." example:"019ae0f2-7b3c-7d21-8e55-2f6a9c0d1e47"`
	Job   string    `json:"job" doc:"Name of its job." example:"daily-invoice-gen"`
	Since time.Time `json:"since" doc:"Since when it holds the limit."`
}

// Most is how many limits a tenant may have.
const Most = 1000

const selectLimits = `
SELECT l.name, l.max_running, l.max_starts_per_second, h.running, w.waiting, h.held_by, j.jobs, l.created_at,
       l.updated_at
FROM punctual.limits l
CROSS JOIN LATERAL (
    SELECT count(*) AS running,
           coalesce(json_agg(json_build_object('run', x.id, 'job', x.job, 'since', x.since) ORDER BY x.place)
                    FILTER (WHERE x.place <= 10), '[]') AS held_by
    FROM (SELECT r.id, j.name AS job, h.since, row_number() OVER (ORDER BY h.since, r.id) AS place
          FROM punctual.limit_holders h
          JOIN punctual.runs_of(ARRAY(
              SELECT o.run_id FROM punctual.limit_holders o WHERE o.tenant = l.tenant AND o.name = l.name)) r
            ON r.id = h.run_id AND r.finished_at IS NULL
          JOIN punctual.jobs j ON j.id = r.job_id
          WHERE h.tenant = l.tenant AND h.name = l.name) x) h
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting
    FROM (SELECT FROM punctual.ready y WHERE y.tenant = l.tenant
                         AND y.waits IN ('turn', 'limit') AND y.waits_on = l.name LIMIT 10000) y) w
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM punctual.job_limits j WHERE j.tenant = l.tenant AND j.name = l.name) j
WHERE l.tenant = $1`

var scanLimit = pgx.RowToStructByPos[Limit]

// List returns a tenant's limits, by name.
func (s *Limits) List(ctx context.Context, tenant int32) ([]Limit, error) {
	list, err := pg.All(ctx, s.db.Reader(tenant), scanLimit, selectLimits+` ORDER BY l.name`, tenant)
	return list, pg.Wrap("listing limits", err)
}

// Get returns a limit. The error is ErrNotFound if there is none.
func (s *Limits) Get(ctx context.Context, tenant int32, name string) (Limit, error) {
	return get(ctx, s.db.Reader(tenant), tenant, name)
}

func get(ctx context.Context, q pg.Querier, tenant int32, name string) (Limit, error) {
	l, err := pg.One(ctx, q, scanLimit, selectLimits+` AND l.name = $2`, tenant, name)
	return l, pg.Found(err, "limit %q", name)
}

// Put creates a limit or changes it. Runs for which it has room then are due at once. If it is lowered, the runs that
// hold it go on.
func (s *Limits) Put(ctx context.Context, tenant int32, name string, to Settings) (l Limit, created bool, err error) {
	err = s.db.InTx(ctx, tenant, func(tx *pg.Tx) error {
		var changed bool
		var err error
		if created, changed, err = write(ctx, tx, tenant, name, to); err != nil {
			return err
		}
		if changed {
			if err := claim.ReleaseLimit(ctx, tx, tenant, name); err != nil {
				return err
			}
		}
		l, err = get(ctx, tx, tenant, name)
		return err
	})
	return l, created, err
}

func write(ctx context.Context, tx *pg.Tx, tenant int32, name string, to Settings) (created, changed bool, err error) {
	made, err := tx.Exec(ctx, `
		INSERT INTO punctual.limits (tenant, name, max_running, max_starts_per_second)
		SELECT $1, $2, $3, $4
		WHERE (SELECT count(*) FROM punctual.limits l WHERE l.tenant = $1) < $5
		ON CONFLICT DO NOTHING`, tenant, name, to.MaxRunning, to.MaxStartsPerSecond, Most)
	if err != nil {
		return false, false, fmt.Errorf("writing limit %q: %w", name, err)
	}
	if made.RowsAffected() > 0 {
		return true, true, audit.Write(ctx, tx, tenant, audit.Change{Action: audit.LimitPut, Name: name, After: to})
	}
	var was Settings
	err = tx.QueryRow(ctx, `
		SELECT max_running, max_starts_per_second FROM punctual.limits WHERE tenant = $1 AND name = $2 FOR NO KEY UPDATE`,
		tenant, name).Scan(&was.MaxRunning, &was.MaxStartsPerSecond)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, false, &jobspec.Refusal{Code: "limit", Reason: fmt.Sprintf("a tenant has at most %d limits", Most)}
	case err != nil:
		return false, false, fmt.Errorf("reading limit %q: %w", name, err)
	case reflect.DeepEqual(was, to):
		return false, false, nil
	}
	if _, err := tx.Exec(ctx, `
		UPDATE punctual.limits
		SET max_running = $3, max_starts_per_second = $4, starts_at = '-infinity', updated_at = clock_timestamp()
		WHERE tenant = $1 AND name = $2`, tenant, name, to.MaxRunning, to.MaxStartsPerSecond); err != nil {
		return false, false, fmt.Errorf("writing limit %q: %w", name, err)
	}
	return false, true, audit.Write(ctx, tx, tenant,
		audit.Change{Action: audit.LimitPut, Name: name, Before: was, After: to})
}

// Delete deletes a limit. The error is *names.InUseError while active or paused jobs name it, and ErrNotFound if
// there is none. Runs that wait at it, of former definitions, are due at once.
func (s *Limits) Delete(ctx context.Context, tenant int32, name string) error {
	return s.db.InTx(ctx, tenant, func(tx *pg.Tx) error {
		var was Settings
		// A transaction that writes a job which names the limit shares this lock until it ends.
		if err := tx.QueryRow(ctx, `
			SELECT max_running, max_starts_per_second FROM punctual.limits WHERE tenant = $1 AND name = $2 FOR UPDATE`,
			tenant, name).Scan(&was.MaxRunning, &was.MaxStartsPerSecond); err != nil {
			return pg.Found(err, "limit %q", name)
		}
		jobs, err := pg.All(ctx, tx, pgx.RowTo[string], `
			SELECT j.name FROM punctual.job_limits x
			JOIN punctual.jobs j ON j.id = x.job_id
			LEFT JOIN punctual.schedules s ON s.job_id = j.id
			WHERE x.tenant = $1 AND x.name = $2 AND punctual.job_state(j, s) IN ('active', 'paused')
			ORDER BY j.name LIMIT $3`, tenant, name, names.MostUsers+1)
		if err != nil {
			return fmt.Errorf("looking for jobs that name limit %q: %w", name, err)
		}
		if err := names.Unused("limit", name, jobs); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM punctual.limits WHERE tenant = $1 AND name = $2`, tenant, name); err != nil {
			return fmt.Errorf("deleting limit %q: %w", name, err)
		}
		if err := claim.Unlimit(ctx, tx, tenant, name); err != nil {
			return err
		}
		return audit.Write(ctx, tx, tenant, audit.Change{Action: audit.LimitDelete, Name: name, Before: was})
	})
}
