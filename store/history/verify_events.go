package history

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/pg"
	"punctual/store/seal"
)

// events compares the subscribers of each event with its runs, and looks for fan-outs that no replica continues.
func (v *verification) events(ctx context.Context, tx pgx.Tx) error {
	if err := v.stuck(ctx, tx); err != nil {
		return err
	}
	e := verifyEvent{v: v, id: domain.FirstRunID(v.summary.From)}
	for {
		err := tx.QueryRow(ctx, `
			SELECT e.id, e.tenant, t.name, e.name, e.emitted_at, e.body, e.made + e.skipped
			FROM punctual.events e
			JOIN punctual.tenants t ON t.id = e.tenant
			WHERE e.id > $1 AND e.id < $2 AND ($3 = 0 OR e.tenant = $3) AND e.turn_at IS NULL
			ORDER BY e.id
			LIMIT 1`, e.id, domain.FirstRunID(v.summary.To), v.tenant).
			Scan(&e.id, &e.tenant, &e.owner, &e.name, &e.at, &e.body, &e.counted)
		some, err := pg.Some(err)
		if some {
			err = e.compare(ctx, tx)
		}
		if err != nil || !some {
			return pg.Wrap("verifying events", err)
		}
	}
}

func (v *verification) stuck(ctx context.Context, tx pgx.Tx) error {
	return v.find(ctx, tx, "looking for fan-outs", func(row pgx.CollectableRow) (one Violation, err error) {
		var name string
		var id uuid.UUID
		var since time.Time
		one.Kind = ViolationOverdue
		err = row.Scan(&one.Tenant, &name, &id, &one.Slot, &since, &one.Count)
		one.Detail = fmt.Sprintf("event %s %s: no replica has continued its fan-out since %s; about %d subscribers are left",
			name, id, pg.Stamp(since), one.Count)
		return one, err
	}, `
		SELECT t.name, e.name, e.id, e.emitted_at, e.turn_at, e.subscribed - e.made - e.skipped - e.unmatched
		FROM punctual.events e
		JOIN punctual.tenants t ON t.id = e.tenant
		WHERE e.turn_at <= `+pg.Now+` - $1::interval AND ($2 = 0 OR e.tenant = $2)
		ORDER BY e.turn_at
		LIMIT $3`, v.options.Grace, v.tenant, mostReports)
}

// verifyEvent is an event whose fan-out is over.
type verifyEvent struct {
	v           *verification
	id          uuid.UUID
	tenant      int32
	owner, name string
	at          time.Time
	body        seal.Tried
	counted     int // runs and skips, as the event says
}

// verifySubscribers reads the jobs that had subscribed to an event, or have a row of it. A job that subscribed just
// before the event may have been written just after it.
const verifySubscribers = `
WITH subscribers AS (
    SELECT c.job_id, coalesce(v.definition #>> '{schedule,filter}', '') AS filter,
           v.valid_from <= $4 - $5::interval AS sure
    FROM (SELECT DISTINCT n.job_id FROM punctual.job_versions n WHERE n.tenant = $2 AND n.event = $3) c
    CROSS JOIN LATERAL (
        SELECT o.event, o.state, o.definition, o.valid_from
        FROM punctual.job_versions o
        WHERE o.job_id = c.job_id AND o.valid_from <= $4
        ORDER BY o.version DESC
        LIMIT 1) v
    WHERE v.event = $3 AND v.state IN ('active', 'paused')),
rows AS (
    SELECT r.id, r.job_id FROM punctual.runs r
    WHERE r.id >= $6 AND r.id < $7 AND r.caused_by = $1 AND r.trigger = 'event')
SELECT coalesce(s.job_id, r.job_id), coalesce(j.name, ''), s.job_id IS NOT NULL, coalesce(s.filter, ''),
       coalesce(s.sure, false), r.id
FROM subscribers s
FULL JOIN rows r ON r.job_id = s.job_id
LEFT JOIN punctual.jobs j ON j.id = coalesce(s.job_id, r.job_id)
WHERE ($8::uuid IS NULL OR j.id = $8) AND ($9 = '' OR j.name = $9)
ORDER BY 1, r.id`

func (e *verifyEvent) compare(ctx context.Context, tx pgx.Tx) error {
	at := domain.IDTime(e.id)
	rows := pg.Query(ctx, tx, verifySubscribers, e.id, e.tenant, e.name, e.at, e.v.options.Grace,
		domain.FirstRunID(at), domain.FirstRunID(at.Add(time.Millisecond)), pg.OrNull(e.v.only), e.v.name)
	var job uuid.UUID
	var name string
	var subscribed, sure bool
	var filter jobspec.EventFilter
	var run *uuid.UUID
	count := 0
	fields := jobspec.FieldsOf(e.body.Body)
	_, err := pgx.ForEachRow(rows, []any{&job, &name, &subscribed, (*string)(&filter), &sure, &run}, func() error {
		if run != nil {
			count++
		}
		found := Violation{Tenant: e.owner, Job: name, JobID: job, Slot: &e.at}
		matches := subscribed && filter.Matcher().Matches(fields)
		if subscribed && filter != "" && e.body.Err != nil {
			matches, sure = run != nil, false // nobody can tell without the body
			e.v.unread(e.body.Err)
		}
		switch {
		case run == nil && matches && sure:
			found.Kind = ViolationMissing
			found.Detail = fmt.Sprintf("the job had subscribed to event %s %s, and has neither a run nor a skip of it",
				e.name, e.id)
		case run != nil && (!matches || *run != domain.EventRunID(e.id, job)):
			found.Kind, found.Runs = ViolationPhantom, []uuid.UUID{*run}
			found.Detail = fmt.Sprintf("run %s is of event %s %s, which makes no such run of the job", *run, e.name, e.id)
		default:
			return nil
		}
		e.v.report(found)
		return e.v.failed
	})
	if err == nil && count != e.counted && e.v.options.Job == "" {
		e.v.report(Violation{Kind: ViolationCount, Tenant: e.owner, Slot: &e.at, Count: e.counted, Detail: fmt.Sprintf(
			"event %s %s says that it has made %d runs and skips, and there are %d", e.name, e.id, e.counted, count)})
	}
	return err
}
