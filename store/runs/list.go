package runs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/days"
	"punctual/store/names"
	"punctual/store/pg"
)

// ClockSlack is how far the time in a run's id may lie before its slot: a skip carries the time at which its
// transaction began, and after a failover the database's clock may be another one.
const ClockSlack = time.Hour

// MostDays is how many days with runs a page of runs looks through: those of a year.
const MostDays = 366

// runCursor is the list that a cursor of runs belongs to.
const runCursor byte = 'r'

// ListRuns returns the runs and skips that the filter selects, newest first by id, and the cursor of the next page,
// which is empty on the last page. A page ends before its limit where its search has looked through
// MostDays days with runs.
//
// Before an instant lie two kinds of runs: those whose ids lie before it too, and those that were made later. The
// second kind has the higher ids, so a page shows it first.
func (s *Runs) ListRuns(
	ctx context.Context, tenant int32, f Filter,
) (runs []Run, nextCursor string, err error) {
	type page struct {
		runs []Run
		next string
	}
	list := func(ctx context.Context, q pg.Source) (p page, err error) {
		p.runs, p.next, err = listRuns(ctx, q, tenant, f)
		return p, err
	}
	var p page
	if f.Status.Final() {
		p, err = pg.Past(ctx, s.db.Callers, tenant, list)
	} else {
		p, err = list(ctx, s.db.Callers.Source(tenant))
	}
	return p.runs, p.next, err
}

func listRuns(ctx context.Context, q pg.Source, tenant int32, f Filter) (runs []Run, nextCursor string, err error) {
	if f.Job != "" {
		id, err := names.Find(ctx, q, tenant, f.Job)
		if err != nil {
			return nil, "", err
		}
		f.job = &id
	}
	parts := []bool{false}
	if f.To != nil && f.Workflow == nil {
		parts = []bool{true, false}
	}
	for _, later := range parts {
		part, left, err := listPart(ctx, q, tenant, f, later, f.Size()+1-len(runs))
		if err != nil {
			return nil, "", err
		}
		if runs = append(runs, part...); len(runs) > f.Size() {
			break
		}
		if !left.IsZero() {
			return runs, pg.Cursor(runCursor, domain.FirstRunID(left)), nil
		}
	}
	runs, nextCursor = pg.Cut(runs, f.Page, runCursor, func(r Run) uuid.UUID { return r.ID })
	return runs, nextCursor, nil
}

// listPart returns the first runs of a page: of those that were made later than the filter's end, or of the others. It
// looks through windows of days, the newest first. left is where the days end that it has not looked at; zero: none are
// left, or there are enough runs.
func listPart(
	ctx context.Context, q pg.Source, tenant int32, f Filter, later bool, limit int,
) (found []Run, left time.Time, err error) {
	search, some, err := f.search(ctx, q, tenant, later)
	if err != nil || !some {
		return nil, left, err
	}
	look := func(ctx context.Context, _ pg.Querier, w days.Window) (bool, error) {
		runs, err := listWindow(ctx, q, tenant, f, later, w, limit-len(found))
		found = append(found, runs...)
		return len(found) == limit, err
	}
	if f.Status == domain.StatusRunning && !later {
		_, err = look(ctx, q, days.Window{}) // it finds these runs by their ids
	} else {
		left, err = search.Back(ctx, q, look)
	}
	return found, left, err
}

// search returns the days in which to look for a part of a page. some is false if there are none.
func (f Filter) search(
	ctx context.Context, q pg.Querier, tenant int32, later bool,
) (s days.Search, some bool, err error) {
	s.Index, s.Most = f.index(later), MostDays
	if f.From != nil {
		s.Since = f.From.Add(-ClockSlack) // no id lies long before its slot
	}
	if f.Workflow != nil { // the ids of its steps have its milliseconds
		at := domain.IDTime(*f.Workflow)
		s.Narrow(at, at)
	}
	if f.Cause != nil { // nothing is caused before
		s.Narrow(domain.IDTime(*f.Cause).Add(-ClockSlack), time.Time{})
	}
	switch {
	case later:
		s.Since = *f.To
	case f.To != nil && f.Workflow == nil:
		s.Until = *f.To
	}
	if f.waits() {
		var oldest, newest *uuid.UUID
		if err := q.QueryRow(ctx, `
			SELECT (SELECT run_id FROM punctual.ready WHERE tenant = $1 ORDER BY run_id LIMIT 1),
			       (SELECT run_id FROM punctual.ready WHERE tenant = $1 ORDER BY run_id DESC LIMIT 1)`, tenant).
			Scan(&oldest, &newest); err != nil {
			return s, false, fmt.Errorf("looking for waiting runs: %w", err)
		}
		if oldest == nil {
			return s, false, nil
		}
		s.Narrow(domain.IDTime(*oldest), domain.IDTime(*newest))
	}
	below, ok, err := f.After(runCursor)
	if ok {
		s.Narrow(time.Time{}, domain.IDTime(below))
	}
	return s, true, err
}

// waits reports whether all runs that the filter selects have rows in ready.
func (f Filter) waits() bool {
	return f.Status != "" && !f.Status.Final() && f.Status != domain.StatusRunning
}

// index returns the index that has all runs which the filter selects.
func (f Filter) index(later bool) days.Index {
	switch {
	case later:
		return days.MadeLater
	case f.Cause != nil:
		return days.ByCause
	case f.Reason != "", f.Status.Final() && f.Status != domain.StatusSucceeded:
		return days.ByReason
	case f.Workflow != nil, f.Trigger != "" && f.Trigger != domain.TriggerSchedule:
		return days.ByTrigger
	case f.Late != nil && *f.Late:
		return days.Late
	}
	return days.All
}

// listWindow is listPart within a window.
func listWindow(
	ctx context.Context, q pg.Source, tenant int32, f Filter, later bool, w days.Window, limit int,
) ([]Run, error) {
	var c pg.Conditions
	if err := f.conditions(&c, tenant); err != nil {
		return nil, err
	}
	var from string
	order := ` ORDER BY r.id DESC`
	switch {
	case later:
		from = f.laterRows(&c, tenant, w)
	case f.To != nil && f.Workflow == nil:
		c.Add(`r.id < ?`, firstAfter(*f.To))
		fallthrough
	default:
		c.Add(w.On(`r.id`))
		from = f.candidates(&c, tenant, w, limit)
	}
	if f.byJob() {
		// Of another tenant's job no run is read: the condition names none, so it is looked at first.
		c.Add(`(SELECT o.tenant FROM punctual.jobs o WHERE o.id = ?::uuid) = ?`, f.ofJob(), tenant)
		key := days.Job(fmt.Sprintf(`$%d::uuid`, len(c.Args)-1))
		c.Add(w.Of(`r`, key))
		order = key.Order(`r`, days.NewestFirst)
	}
	query := queryInOrder
	if from != "" {
		some, err := c.Candidates(ctx, q.All, `r.tenant`, tenant, `r.id`, from, limit)
		if err != nil || !some {
			return nil, pg.Wrap("listing runs", err)
		}
		query = Query
	}
	return query(ctx, q, c.Where()+fmt.Sprintf(`%s LIMIT %d`, order, limit), c.Args...)
}

// ofJob returns the job whose runs the filter selects; nil: those of all jobs.
func (f Filter) ofJob() *uuid.UUID { return cmp.Or(f.job, f.JobID) }

// byJob reports whether the runs are found by their job. Other filters have better indexes.
func (f Filter) byJob() bool {
	return f.ofJob() != nil && f.To == nil && f.Workflow == nil && f.Reason == "" && f.Trigger == "" && f.Cause == nil &&
		f.Late == nil && len(f.Labels) == 0 && (f.Status == "" || f.Status == domain.StatusSucceeded)
}

// conditions adds what the filter says.
func (f Filter) conditions(c *pg.Conditions, tenant int32) error {
	c.Add(`r.tenant = ?`, tenant)
	if err := c.Page(f.Page, runCursor, `r.id < ?`); err != nil {
		return err
	}
	// names.Find does not look up an id, so the second condition excludes deleted jobs.
	c.AddIf(f.job != nil, `j.state <> 'deleted'`)
	if job := f.ofJob(); job != nil && !f.byJob() {
		c.Add(`r.job_id = ?`, job)
	}
	switch f.Status {
	case "":
	case domain.StatusSucceeded:
		// Most runs have succeeded. With this condition the planner expects so too, even for a day without statistics.
		c.Add(`r.status <> ALL(?::text[])`,
			pg.Texts(slices.DeleteFunc(domain.Statuses(), func(s domain.Status) bool { return s == f.Status })))
	default:
		c.Add(`r.status = ?`, f.Status)
	}
	c.AddIf(f.Reason != "", `r.reason = ?`, f.Reason)
	switch {
	case f.Trigger != "":
		c.Add(`r.trigger = ?`, f.Trigger)
	case f.Workflow != nil:
		c.Add(`r.trigger = ?`, domain.TriggerStep)
	default:
		c.Add(`r.trigger <> ?`, domain.TriggerStep)
	}
	if f.Workflow != nil {
		at := domain.IDTime(*f.Workflow)
		c.Add(`r.parent_run = ? AND r.id >= ? AND r.id < ?`,
			*f.Workflow, domain.FirstRunID(at), domain.FirstRunID(at.Add(time.Millisecond)))
	}
	c.AddIf(f.Late != nil, `r.late = ?`, f.Late)
	c.AddIf(f.Cause != nil, `r.caused_by = ?`, f.Cause)
	if err := names.SelectLabels(c, f.Labels); err != nil {
		return err
	}
	if f.From != nil {
		// No id lies long before its slot. The lower bound prunes partitions.
		c.Add(`r.id >= ?`, domain.FirstRunID(f.From.Add(-ClockSlack)))
		c.Add(`coalesce(r.skipped_last, r.scheduled_for) >= ?`, *f.From)
	}
	c.AddIf(f.To != nil, `coalesce(r.skipped_first, r.scheduled_for) < ?`, f.To)
	return nil
}

// queryInOrder is Query for conditions that an index can serve in the order of ids. It makes Postgres read rows in that
// order, which ends with the page. Of a day without statistics Postgres expects few rows that match, and would read and
// sort all of them.
func queryInOrder(ctx context.Context, q pg.Querier, rest string, args ...any) (runs []Run, err error) {
	var b pgx.Batch
	b.Queue(days.InOrder)
	b.Queue(selectRuns+rest, args...).Query(pg.Into(&runs, scanRun))
	if err := q.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("reading runs: %w", err)
	}
	return runs, fillMaxAttempts(ctx, q, runs)
}

const withJobs = ` LEFT JOIN punctual.jobs j ON j.id = r.job_id`

// candidates returns the tables in which to look for the page's rows first. It returns nothing if the conditions find
// them by the indexes on a job, a reason, a trigger or a tenant. These indexes begin with the value that is asked for
// and go on with the id, so a page costs as much as it is long, whatever else there is. No index has the status,
// because the status of each run changes: runs of most states are found by their reasons, or by their rows in ready.
func (f Filter) candidates(c *pg.Conditions, tenant int32, w days.Window, limit int) string {
	switch {
	case f.Status == domain.StatusRunning:
		// Replicas send few runs at a time. Runs that targets work on are in ready.
		c.Args = append(c.Args, tenant)
		return fmt.Sprintf(`punctual.runs_of(ARRAY(
				SELECT unnest(run_ids) FROM punctual.claims
				UNION
				SELECT run_id FROM punctual.ready WHERE tenant = $%d AND waits IN ('target', 'person'))) r`, len(c.Args)) + withJobs
	case f.waits():
		c.Add(`y.tenant = ? AND `+w.On(`y.run_id`), tenant)
		return `punctual.ready y JOIN punctual.runs r ON r.id = y.run_id AND r.job_id = y.job_id` + withJobs
	case f.Status != "" && f.Status != domain.StatusSucceeded && f.Reason == "":
		c.Args = append(c.Args, pg.Texts(domain.ReasonsOf(f.Status)))
		inner := fmt.Sprintf(`unnest($%d::text[]) v(reason)
			CROSS JOIN LATERAL (
				SELECT r.* FROM punctual.runs r`+withJobs+c.Where()+` AND r.reason = v.reason
				ORDER BY r.id DESC LIMIT %d) r`, len(c.Args), limit)
		*c = pg.Conditions{Args: c.Args} // the inner statement has the others
		return inner
	case len(f.Labels) > 0:
		return runTables
	}
	return ""
}

// InOrder returns the runs of a tenant with the given ids, each once, in their order. gone is how many of them no
// longer exist.
func (s *Runs) InOrder(ctx context.Context, tenant int32, ids []uuid.UUID) (found []Run, gone int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	all, err := Query(ctx, s.db.Callers.Reader(tenant), ` WHERE r.id = ANY($1::uuid[]) AND r.tenant = $2`, ids, tenant)
	if err != nil {
		return nil, 0, err
	}
	byID := make(map[uuid.UUID]Run, len(all))
	for _, r := range all {
		byID[r.ID] = r
	}
	seen := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		r, is := byID[id]
		switch {
		case seen[id]:
		case is:
			found = append(found, r)
		default:
			gone++
		}
		seen[id] = true
	}
	return found, gone, nil
}
