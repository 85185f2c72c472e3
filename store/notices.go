package store

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler"
)

// noticeGap is within what notices of a job are told together.
const noticeGap = `interval '5 min'`

// Notices are written in the transaction of what they are about, and by what it has made of the runs: a row
// whose xmin is this transaction is one that it wrote. So an outcome that is written again, because it was
// not known whether the first time was committed, finds a run that another transaction ended, and a run
// that was there already is not late again.
const (
	byThisTransaction = `r.xmin = pg_current_xact_id()::xid`
	mayBeTold         = `greatest(now(), n.sent_at + ` + noticeGap + `)`
)

const insertNotices = `
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, slots, reason, error, happened_at, tell_at)
SELECT r.job_id, r.tenant, r.job_version, u.event, r.id, r.scheduled_for, r.skipped_count, r.reason, r.error, coalesce(r.finished_at, now()), ` + mayBeTold + `
FROM unnest($1::uuid[], $2::text[]) AS u(run_id, event) JOIN punctual.runs r ON r.id = u.run_id LEFT JOIN punctual.notified n ON n.job_id = r.job_id
WHERE r.id = ANY($1::uuid[]) AND ` + byThisTransaction + ` AND (u.event <> 'dead' OR r.status = 'dead')`

// The last of a job's runs that ended says whether the job fails. Where it was failing or a run died before,
// a success is a recovery. The rows of notified are locked in the order of their jobs; a success where
// nothing was wrong locks none.
const insertRecovered = `
WITH ended AS (
    SELECT DISTINCT ON (r.job_id) r.id, r.job_id, r.tenant, r.job_version, r.scheduled_for, r.finished_at, r.status, bool_or(r.status = 'dead') OVER (PARTITION BY r.job_id) AS died
    FROM punctual.runs r WHERE r.id = ANY($1::uuid[]) AND ` + byThisTransaction + ` AND r.status IN ('succeeded', 'dead')
    ORDER BY r.job_id, r.finished_at DESC, r.id DESC),
turned AS (
    INSERT INTO punctual.notified AS n (job_id, failing)
    SELECT e.job_id, e.status = 'dead' FROM ended e JOIN punctual.jobs j ON j.id = e.job_id LEFT JOIN punctual.notified f ON f.job_id = e.job_id
    WHERE e.died OR f.failing ORDER BY e.job_id
    ON CONFLICT (job_id) DO UPDATE SET failing = excluded.failing WHERE n.failing <> excluded.failing
    RETURNING n.job_id)
INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, happened_at, tell_at)
SELECT e.job_id, e.tenant, e.job_version, 'recovered', e.id, e.scheduled_for, e.finished_at, ` + mayBeTold + `
FROM ended e LEFT JOIN punctual.notified n ON n.job_id = e.job_id
WHERE e.status = 'succeeded' AND (e.died OR e.job_id IN (SELECT job_id FROM turned))`

// isNotice tells of a run r that it is a notice, and so none of its job's own. Of a replay only run_data knows;
// it is asked by a subquery that cannot become a scan of all of it.
const isNotice = `(r.trigger = 'notify' OR r.trigger = 'replay' AND (SELECT d.notify_url FROM punctual.run_data d WHERE d.run_id = r.id) IS NOT NULL)`

// noticeRows collects what is to be told of runs, column by column, for one INSERT.
type noticeRows struct {
	runs   []uuid.UUID
	events []string
}

// add puts an event down if the job has it told to anybody.
func (n *noticeRows) add(job *scheduler.Job, e scheduler.Event, run uuid.UUID) {
	if job.Notifies(e) {
		n.runs, n.events = append(n.runs, run), append(n.events, string(e))
	}
}

// queue queues the INSERT, after the statements that write the runs.
func (n *noticeRows) queue(b *pgx.Batch) {
	if len(n.runs) > 0 {
		b.Queue(insertNotices, n.runs, n.events)
	}
}

// queueEndNotices queues what the ends of attempts give to tell, after the statements that write them.
func queueEndNotices(b *pgx.Batch, outcomes []scheduler.Outcome) {
	var dead, late noticeRows
	var turning []uuid.UUID
	for _, o := range outcomes {
		if len(o.Job.Notify) == 0 {
			continue
		}
		if o.TurnedLate {
			late.add(o.Job, scheduler.EventLate, o.RunID)
		}
		status := o.End().Status
		dies := status == scheduler.StatusDead || o.Verdict == scheduler.Expire // which of the two expiry means, the row says
		if dies {
			dead.add(o.Job, scheduler.EventDead, o.RunID)
		}
		if (dies || status == scheduler.StatusSucceeded) && o.Job.Notifies(scheduler.EventRecovered) {
			turning = append(turning, o.RunID)
		}
	}
	late.queue(b)
	dead.queue(b)
	if len(turning) > 0 {
		b.Queue(insertRecovered, turning)
	}
}

// sentBy returns the job that a run is sent by: its own, nil included, or on a notice one that goes to its URL.
func sentBy(job *scheduler.Job, notifyURL string) (*scheduler.Job, error) {
	if job == nil || notifyURL == "" {
		return job, nil
	}
	return job.Notice(notifyURL)
}
