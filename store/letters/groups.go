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

// DeadLetterGroup is the open dead letters of one job that have one reason.
type DeadLetterGroup struct {
	JobID      uuid.UUID      `json:"job_id" format:"uuid" doc:"The job." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Job        string         `json:"job" doc:"The job's name when the newest of the runs died." example:"daily-invoice-gen"`
	Reason     *domain.Reason `json:"reason" nullable:"true" doc:"Why their last attempts failed." example:"http_5xx"`
	Count      int            `json:"count" minimum:"1" maximum:"10000" doc:"How many dead letters the group has. 10000: 10,000 or more." example:"1204"`
	OldestSlot time.Time      `json:"oldest_slot" doc:"The oldest of their slots."`
	NewestSlot time.Time      `json:"newest_slot" doc:"The newest of their slots."`
	NewestRun  uuid.UUID      `json:"newest_run" format:"uuid" doc:"The newest of the dead runs, by its id." example:"019ad964-3b80-8b21-8f6e-1d2c3b4a5968"`
	HTTPStatus *int           `json:"http_status" doc:"Status of the newest run's last response, if there was one." example:"503"`
	Error      *string        `json:"error" doc:"The newest run's last error, for people."`
}

// newestWindow is how many dead letters are searched first for groups. After an outage of many targets they are of many
// jobs, and a page of groups is among them.
const newestWindow = 2000

const (
	// letterReason is a reason as the index of groups has it. Row-level security lets an expression with CASE use an
	// index, and none with coalesce.
	letterReason = `CASE WHEN d.reason IS NULL THEN '' ELSE d.reason END`
	// inGroup is true for a dead letter of the group. It says with two bounds what two equalities would say: with those,
	// the planner sees that the dead letters of a group are in the order of their runs anyway, and may search the newest
	// dead letters of all groups for those of one.
	inGroup = `(d.job_id, ` + letterReason + `) >= (%[1]s.job_id, %[1]s.reason)
		AND (d.job_id, ` + letterReason + `) <= (%[1]s.job_id, %[1]s.reason)`
	// These are the orders of the index of groups.
	groupOrder = ` ORDER BY d.job_id, ` + letterReason + `, d.run_id`
	backwards  = ` ORDER BY d.job_id DESC, ` + letterReason + ` DESC, d.run_id DESC`
)

// inOrder has rows read in the order of an index for the rest of a transaction. Where dead letters came all of a
// sudden, the planner does not know yet how many there are, and would sort them all.
const inOrder = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true)`

// grouping finds a page of groups. A group stands in the list where its newest dead letter stands in the list of dead
// letters: the id of that run is the group's place, and a cursor.
type grouping struct {
	tx      pgx.Tx
	size    int           // of the page
	letters pg.Conditions // on dead letters d
	groups  pg.Conditions // on groups h; its arguments are those of both
	below   string        // the argument that is the cursor; empty: it is the first page
}

// ListGroups returns the groups of the open dead letters that the filter selects, the newest first, and the cursor of
// the next page, which is empty on the last page. A group that gets a newer dead letter meanwhile moves to the front.
// The filter's Resolved is ignored.
func (l *Letters) ListGroups(
	ctx context.Context, tenant int32, f DeadLetterFilter,
) (groups []DeadLetterGroup, nextCursor string, err error) {
	err = l.db.Callers.ReadOnly(ctx, tenant, func(tx pgx.Tx) error {
		g := grouping{tx: tx, size: f.Size()}
		if err := g.conditions(ctx, tenant, f); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, inOrder); err != nil {
			return fmt.Errorf("planning groups of dead letters: %w", err)
		}
		places, err := g.amongNewest(ctx)
		if err == nil && len(places) <= g.size {
			places, err = g.amongAll(ctx)
		}
		if err != nil {
			return fmt.Errorf("looking for groups of dead letters: %w", err)
		}
		groups, err = g.read(ctx, places)
		return pg.Wrap("reading groups of dead letters", err)
	})
	if err != nil {
		return nil, "", err
	}
	groups, nextCursor = pg.Cut(groups, f.Page, groupCursor, func(g DeadLetterGroup) uuid.UUID { return g.NewestRun })
	return groups, nextCursor, nil
}

func (g *grouping) conditions(ctx context.Context, tenant int32, f DeadLetterFilter) error {
	place, ok, err := f.After(groupCursor)
	if err != nil {
		return err
	}
	if err := f.findJob(ctx, g.tx, tenant); err != nil {
		return err
	}
	// A group has one reason, so groups of other reasons are passed over whole.
	reason := f.Reason
	f.Reason, f.Resolved = "", new(false)
	f.onLetters(&g.letters, tenant)
	g.groups.Args = slices.Clip(g.letters.Args)
	g.groups.AddIf(reason != "", `h.reason = ?`, string(reason))
	if ok {
		g.groups.Add(`h.run_id < ?`, place)
		g.below = fmt.Sprintf("$%d", len(g.groups.Args))
	}
	if f.Job == "" && len(f.Labels) == 0 {
		return nil
	}
	jobs := pg.Conditions{Args: g.groups.Args}
	if err := f.onJobs(&jobs); err != nil {
		return err
	}
	g.groups.Args = jobs.Args
	g.groups.Add(`(SELECT true FROM punctual.jobs j` + jobs.Where() + ` AND j.id = h.job_id)`) // by id, however many jobs
	return nil
}

// amongNewest finds the first groups among the newest dead letters below the cursor. A group that has a dead letter
// above the cursor was on a page before.
func (g *grouping) amongNewest(ctx context.Context) ([]uuid.UUID, error) {
	window, shown := ``, ``
	if g.below != "" {
		window = ` AND d.run_id < ` + g.below
		shown = ` AND (SELECT true FROM punctual.dead_letters d` + g.letters.Where() + `
			AND ` + fmt.Sprintf(inGroup, "h") + ` AND d.run_id >= ` + g.below + groupOrder + ` LIMIT 1) IS NULL`
	}
	return g.places(ctx, fmt.Sprintf(`
		WITH newest AS MATERIALIZED (
		    SELECT d.tenant, d.job_id, d.reason, d.run_id, d.scheduled_for, d.trigger, d.resolved_at
		    FROM punctual.dead_letters d
		    WHERE d.tenant = $1 AND d.resolved_at IS NULL%s
		    ORDER BY d.run_id DESC LIMIT %d)
		SELECT h.run_id FROM (
		    SELECT DISTINCT ON (d.job_id, d.reason) d.job_id, `+letterReason+` AS reason, d.run_id
		    FROM newest d%s
		    ORDER BY d.job_id, d.reason, d.run_id DESC) h%s%s`,
		window, newestWindow, g.letters.Where(), g.groups.Where(), shown))
}

// amongAll finds the first groups among all groups. It jumps in the index from one group to the next, so it takes as
// long as there are groups, however many dead letters they have.
func (g *grouping) amongAll(ctx context.Context) ([]uuid.UUID, error) {
	one := `SELECT d.job_id, ` + letterReason + ` AS reason, d.run_id FROM punctual.dead_letters d` + g.letters.Where()
	return g.places(ctx, `
		WITH RECURSIVE h AS (
		    (`+one+backwards+` LIMIT 1)
		    UNION ALL
		    SELECT n.job_id, n.reason, n.run_id FROM h CROSS JOIN LATERAL (
		        `+one+` AND (d.job_id, `+letterReason+`) < (h.job_id, h.reason)`+backwards+` LIMIT 1) n)
		SELECT h.run_id FROM h`+g.groups.Where())
}

// places returns the places of a page's groups, and of one more, from a statement that finds groups h.
func (g *grouping) places(ctx context.Context, sql string) ([]uuid.UUID, error) {
	sql += fmt.Sprintf(` ORDER BY h.run_id DESC LIMIT %d`, g.size+1)
	return pg.All(ctx, g.tx, pgx.RowTo[uuid.UUID], sql, g.groups.Args...)
}

// read reads the groups at the places, and counts their dead letters.
func (g *grouping) read(ctx context.Context, places []uuid.UUID) ([]DeadLetterGroup, error) {
	one := `SELECT d.scheduled_for FROM punctual.dead_letters d` + g.letters.Where() + `
		AND ` + fmt.Sprintf(inGroup, "n")
	args := append(slices.Clip(g.letters.Args), places)
	return pg.All(ctx, g.tx, seal.Rows(pgx.RowToStructByPos[DeadLetterGroup], "error"), fmt.Sprintf(`
		SELECT n.job_id, n.job_name, nullif(n.reason, ''), c.dead, least(c.oldest, (%s LIMIT 1)), c.newest, n.run_id,
		       n.http_status, n.error
		FROM (SELECT d.job_id, d.job_name, `+letterReason+` AS reason, d.run_id, d.http_status, d.error
		      FROM punctual.dead_letters d WHERE d.run_id = ANY($%d::uuid[])) n
		CROSS JOIN LATERAL (
		    SELECT count(*) AS dead, min(l.scheduled_for) AS oldest, max(l.scheduled_for) AS newest
		    FROM (%s LIMIT %d) l) c
		ORDER BY n.run_id DESC`, one+groupOrder, len(args), one+backwards, pg.DepthCap), args...)
}
