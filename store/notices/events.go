package notices

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/claim"
	"punctual/store/days"
	"punctual/store/pg"
	"punctual/store/seal"
)

// Gap is the time within which repetitions of an event of a job are collected and told together, as SQL. The statements
// below spell it out.
const Gap = `interval '5 min'`

// Notices are written in the transaction that writes the event, and only for runs that this transaction has written:
// their xmin is the transaction's own id. An outcome may be written twice, because it was not known whether the first
// write was committed. The second write then finds a run that another transaction ended, and makes no notice. Nor does
// a run that existed already become late again.
//
// An event is told at once, or a Gap after the same event of the job was last told (notified.sent).

// The row of notified says by now since when the job fails: see turnFailing.
const insertNotices = `
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, slots, reason, error,
    http_status, response, since, failures, happened_at, tell_at)
SELECT r.job_id, r.tenant, r.job_version, u.event, r.id, r.scheduled_for, r.skipped_count, r.reason, r.error,
       CASE u.event WHEN 'dead' THEN r.http_status END, u.response,
       CASE u.event WHEN 'dead' THEN n.failing_since END, CASE u.event WHEN 'dead' THEN n.failures END,
       coalesce(r.finished_at, now()),
       greatest(now(), (n.sent ->> u.event)::timestamptz + interval '5 min')
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u(run_id, event, response)
JOIN punctual.runs r ON r.id = u.run_id
LEFT JOIN punctual.notified n ON n.job_id = r.job_id
WHERE r.id = ANY($1::uuid[]) AND r.xmin = pg_current_xact_id()::xid AND (u.event <> 'dead' OR r.status = 'dead')`

// ofFailed is the key of the runs of the job of a run r.
var ofFailed = days.Job(`r.job_id`)

// The first failed attempt of a healthy job makes a notice, in the transaction that writes the job's row of notified.
// The rows are locked in the order of their jobs. A job had no failures before if its count is just what was added. An
// outcome may be written late, because another transaction had locked a row. If the job has succeeded since the attempt
// ended, the failure is past.
var turnFailing = `
WITH failed AS (
    SELECT r.id, r.job_id, r.tenant, r.job_version, r.scheduled_for, r.reason, r.error, r.http_status,
           u.response, u.at, u.told,
           row_number() OVER (PARTITION BY r.job_id ORDER BY u.at, r.id) AS place,
           count(*) OVER (PARTITION BY r.job_id) AS failures
    FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::bool[]) AS u(run_id, at, response, told)
    JOIN punctual.runs r ON r.id = u.run_id
    WHERE r.id = ANY($1::uuid[]) AND r.xmin = pg_current_xact_id()::xid
      AND r.status IN ('retrying', 'pending', 'dead')
      AND CASE WHEN u.at > now() - interval '1 s' THEN true
               ELSE NOT EXISTS (
                   SELECT FROM (
                       SELECT s.status, s.finished_at FROM punctual.runs s
                       WHERE ` + ofFailed.From(`s`, `'00000000-0000-0000-0000-000000000000'`) + `
                         AND ` + ofFailed.To(`s`) + `
                         AND s.step IS NULL` + ofFailed.Order(`s`, days.NewestFirst) + ` LIMIT 20) s
                   WHERE s.status = 'succeeded' AND s.finished_at > u.at) END),
turned AS (
    INSERT INTO punctual.notified AS n (job_id, failing_since, failed_at, failures)
    SELECT f.job_id, f.at, (SELECT max(o.at) FROM failed o WHERE o.job_id = f.job_id), f.failures
    FROM failed f
    JOIN punctual.jobs j ON j.id = f.job_id
    WHERE f.place = 1
    ORDER BY f.job_id
    ON CONFLICT (job_id) DO UPDATE
    SET failing_since = coalesce(n.failing_since, excluded.failing_since), failures = n.failures + excluded.failures,
        failed_at = greatest(n.failed_at, excluded.failed_at)
    RETURNING n.job_id, n.failing_since, n.failures, n.sent)
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, reason, error, http_status,
    response, since, failures, happened_at, tell_at)
SELECT f.job_id, f.tenant, f.job_version, 'failing', f.id, f.scheduled_for, f.reason, f.error, f.http_status,
       f.response, n.failing_since, n.failures, f.at,
       greatest(now(), (n.sent ->> 'failing')::timestamptz + interval '5 min')
FROM failed f
JOIN turned n ON n.job_id = f.job_id AND n.failures = f.failures
WHERE f.place = 1 AND f.told`

// The last of a job's ended attempts decides whether the job is healthy. A success of a job that was healthy finds no
// row and locks none. A success that is written late, after a later attempt has failed, leaves the job failing.
const turnWell = `
WITH unwell AS (
    SELECT n.job_id, n.failing_since, n.stale_since, n.failures, n.failed_at, n.sent FROM punctual.notified n
    WHERE n.job_id = ANY($1::uuid[]) AND (n.failing_since IS NOT NULL OR n.stale_since IS NOT NULL)
    ORDER BY n.job_id FOR NO KEY UPDATE),
ended AS (
    SELECT DISTINCT ON (r.job_id) r.id, r.job_id, r.tenant, r.job_version, r.scheduled_for, r.status, u.at, u.told,
           w.failing_since IS NOT NULL AND coalesce(u.at < w.failed_at, false) AS past
    FROM unwell w
    JOIN unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::bool[]) AS u(job_id, run_id, at, told)
      ON u.job_id = w.job_id
    JOIN punctual.runs r ON r.id = u.run_id
    WHERE r.id = ANY($2::uuid[]) AND r.xmin = pg_current_xact_id()::xid
      AND r.status IN ('succeeded', 'retrying', 'dead')
    ORDER BY r.job_id, u.at DESC, r.id DESC),
well AS (
    UPDATE punctual.notified n
    SET failing_since = CASE WHEN e.past THEN n.failing_since END,
           failures = CASE WHEN e.past THEN n.failures ELSE 0 END,
           stale_since = NULL, success_at = e.at,
           look_at = CASE WHEN n.stale_since IS NOT NULL THEN now() ELSE n.look_at END
    FROM ended e WHERE n.job_id = e.job_id AND e.status = 'succeeded' RETURNING n.job_id)
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, since, failures,
    happened_at, tell_at)
SELECT e.job_id, e.tenant, e.job_version, 'recovered', e.id, e.scheduled_for,
       least(n.failing_since, n.stale_since), n.failures, e.at,
       greatest(now(), (n.sent ->> 'recovered')::timestamptz + interval '5 min')
FROM ended e
JOIN unwell n ON n.job_id = e.job_id
WHERE e.status = 'succeeded' AND NOT e.past AND e.told`

// Following is what people are told of in one transaction. It implements claim.Following.
type Following struct {
	claim.Nothing
	Defaults
	now bool // a notice was written that may be told at once
}

// Concerns implements claim.Following.
func (f *Following) Concerns(job *domain.Job) bool { return len(f.Of(job)) > 0 }

// Starts implements claim.Following.
func (f *Following) Starts(job *domain.Job) bool {
	return jobspec.Asks(f.Of(job), jobspec.EventStarted)
}

// Asks implements claim.Following.
func (f *Following) Asks() []string {
	if f.now {
		return []string{scheduler.ChoreNotices}
	}
	return nil
}

// queue queues a statement that writes notices.
func (f *Following) queue(b *pgx.Batch, insert string, args ...any) {
	b.Queue(insert+` RETURNING tell_at <= now()`, args...).Query(func(rows pgx.Rows) error {
		written, err := pgx.CollectRows(rows, pgx.RowTo[bool])
		f.now = f.now || slices.Contains(written, true)
		return err
	})
}

// rows collects events of runs that are to be told, column by column, for one INSERT.
type rows struct {
	runs      []uuid.UUID
	events    []string
	responses []*seal.Text
}

func (n *rows) add(run uuid.UUID, e jobspec.Event, response string) {
	n.runs, n.events = append(n.runs, run), append(n.events, string(e))
	n.responses = append(n.responses, excerpt(response))
}

// queue queues the INSERT, after the statements that write the runs.
func (n *rows) queue(b *pgx.Batch, f *Following) {
	if len(n.runs) > 0 {
		f.queue(b, insertNotices, n.runs, n.events, n.responses)
	}
}

// QueueEvents implements claim.Following.
func (f *Following) QueueEvents(b *pgx.Batch, events []claim.RunEvent) {
	var told rows
	var starts lifecycle
	for _, e := range events {
		switch list := f.Of(e.Job); {
		case e.Event == jobspec.EventStarted:
			starts.add(list, e.Job, e.Run, e.Event)
		case jobspec.Asks(list, e.Event):
			told.add(e.Run, e.Event, "")
		}
	}
	told.queue(b, f)
	starts.queue(b)
}

// excerpt is the part of a response that a notice keeps; nil: there was no response.
func excerpt(response string) *seal.Text {
	return pg.OrNull(seal.Text(notice.Excerpt(response)))
}

// endedAttempts are attempts of jobs with recipients for events about the job's health.
type endedAttempts struct {
	jobs, runs []uuid.UUID
	at         []time.Time
	responses  []*seal.Text
	told       []bool // whether the attempt's event has a recipient
}

func (e *endedAttempts) add(o domain.Outcome, told bool) {
	e.jobs, e.runs, e.at = append(e.jobs, o.Job.ID), append(e.runs, o.RunID), append(e.at, o.FinishedAt)
	e.responses, e.told = append(e.responses, excerpt(o.Response)), append(e.told, told)
}

// QueueEnds implements claim.Following: it queues the notices about ended attempts. A job's health is kept only if the
// job has recipients for it, and a success of a healthy job writes nothing.
func (f *Following) QueueEnds(b *pgx.Batch, outcomes []domain.Outcome, _ days.Day) {
	var dead rows
	var failed, all endedAttempts
	var ends lifecycle
	succeeded := false
	for _, o := range outcomes {
		list := f.Of(o.Job)
		if o.Verdict == domain.Succeed {
			ends.add(list, o.Job, o.RunID, jobspec.EventSucceeded)
		}
		if !jobspec.Asks(list,
			jobspec.EventFailing, jobspec.EventDead, jobspec.EventStale, jobspec.EventRecovered) {
			continue
		}
		switch end := o.End(); {
		case end.Status == domain.StatusSucceeded:
			all.add(o, jobspec.Asks(list, jobspec.EventRecovered))
			succeeded = true
		case end.Status == domain.StatusDead, o.Verdict == domain.Expire: // the row says whether an expired run is dead
			if jobspec.Asks(list, jobspec.EventDead) {
				dead.add(o.RunID, jobspec.EventDead, o.Response)
			}
			fallthrough
		case end.Attempt == domain.AttemptFailed,
			end.Attempt == domain.AttemptTimedOut,
			end.Attempt == domain.AttemptLost:
			failed.add(o, jobspec.Asks(list, jobspec.EventFailing))
			all.add(o, false)
		case o.Verdict == domain.Hold && o.Held.Since.Equal(o.FinishedAt): // its host is down: counts as a failed attempt
			failed.add(o, jobspec.Asks(list, jobspec.EventFailing))
		}
	}
	f.queueApprovals(b, outcomes)
	ends.queue(b)
	if len(failed.runs) > 0 {
		f.queue(b, turnFailing, failed.runs, failed.at, failed.responses, failed.told)
	}
	dead.queue(b, f)
	if succeeded {
		f.queue(b, turnWell, all.jobs, all.runs, all.at, all.told)
	}
}
