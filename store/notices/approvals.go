package notices

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/aside"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// A step that waits for approval is told of in a message of its own, to each recipient of its approval.notify: what is
// collected and told together with other things would come too late, and a link is for one step.

// insertApprovals writes the notices of steps that wait for approval, for runs that this transaction has written.
const insertApprovals = `
INSERT INTO punctual.approval_notices (run_id, nth, tenant)
SELECT r.id, n, r.tenant
FROM unnest($1::uuid[], $2::integer[]) AS u(run_id, recipients)
JOIN punctual.runs r ON r.id = u.run_id
CROSS JOIN generate_series(0, u.recipients - 1) n
WHERE r.id = ANY($1::uuid[]) AND r.xmin = pg_current_xact_id()::xid AND r.status = 'running' AND r.reason IS NULL
ON CONFLICT DO NOTHING`

// queueApprovals queues the notices of those outcomes after which steps wait for approval.
func (f *Following) queueApprovals(b *pgx.Batch, outcomes []domain.Outcome) {
	var runs []uuid.UUID
	var recipients []int
	for _, o := range outcomes {
		if o.Verdict == domain.Await && o.Job.Approval != nil && len(o.Job.Approval.Notify) > 0 {
			runs, recipients = append(runs, o.RunID), append(recipients, len(o.Job.Approval.Notify))
		}
	}
	if len(runs) == 0 {
		return
	}
	b.Queue(insertApprovals, runs, recipients)
	f.now = true
}

// mostApprovals is how many of these messages of a tenant are under way at once, on all replicas. It leaves messengers
// to others when recipients are slow and many steps wait.
const mostApprovals = 4

// approvalsDue is SQL for whether a notice of a step that waits for approval may be sent now.
const approvalsDue = `EXISTS (SELECT FROM punctual.approval_notices WHERE due_at <= now())`

// approvalNotice is a locked row of approval_notices.
type approvalNotice struct {
	notice.Outgoing
	job          definitions.Version
	name         string // of the job
	tenant       string // name
	key          []byte // of tokens
	live         bool
	slot         time.Time
	since, until time.Time
	now          time.Time
}

// claimApproval takes the notice of a step that waits for approval, for this replica to send; nil: there is none now.
func (s *Teller) claimApproval(ctx context.Context) (m *notice.Outgoing, err error) {
	steps, err := s.aside.Select(ctx, s.db.Chores, dueApprovals, `
		SELECT run_id FROM punctual.approval_notices WHERE due_at <= now() AND run_id <> ALL($2::uuid[])
		ORDER BY due_at LIMIT $1`, stepsSought)
	for i := 0; err == nil && m == nil && i < len(steps); i++ {
		m, err = s.claimApprovalOf(ctx, steps[i])
		_, err = s.aside.One(ctx, aside.Recipient, steps[i], false, err)
	}
	return m, pg.Wrap("claiming the notice of an approval", err)
}

// stepsSought is how many steps that wait for approval a replica looks at: others may have locked their notices.
const stepsSought = 16

// dueApprovals are the steps of whose waiting somebody is to be told now.
var dueApprovals = aside.Rows{
	Kind: aside.Recipient, Table: "approval_notices", ID: "run_id", Are: "r.due_at <= now()",
}

func (s *Teller) claimApprovalOf(ctx context.Context, step uuid.UUID) (*notice.Outgoing, error) {
	return s.claim(ctx, func(tx *pg.Tx) (*notice.Outgoing, error) {
		a := approvalNotice{Outgoing: notice.Outgoing{ID: domain.NewRunID(time.Now())}}
		err := tx.QueryRow(ctx, lockApproval, mostApprovals, step).Scan(
			&a.Run, &a.Nth, &a.Tenant, &a.tenant, &a.key, &a.now, &a.live, &a.until,
			&a.job.Job, &a.job.Version, &a.job.Step, &a.since, &a.slot, &a.name)
		if some, err := pg.Some(err); !some {
			return nil, err
		}
		return &a.Outgoing, s.composeApproval(ctx, tx, &a)
	})
}

const lockApproval = `
WITH busy AS MATERIALIZED (
    SELECT tenant FROM punctual.approval_notices WHERE lease IS NOT NULL AND due_at > now()
    GROUP BY tenant HAVING count(*) >= $1)
SELECT a.run_id, a.nth, a.tenant, t.name, k.key, now(), y.run_id IS NOT NULL, coalesce(y.due_at, now()),
       coalesce(r.job_id, a.run_id), coalesce(r.job_version, 0), coalesce(r.step, ''), coalesce(r.started_at, now()),
       coalesce(r.scheduled_for, now()), coalesce(j.name, '')
FROM punctual.approval_notices a
JOIN punctual.tenants t ON t.id = a.tenant
CROSS JOIN punctual.deployment d
CROSS JOIN punctual.run_token_key k
LEFT JOIN punctual.ready y ON y.run_id = a.run_id AND y.waits = 'person'
LEFT JOIN LATERAL punctual.runs_of(ARRAY[a.run_id]) r ON true
LEFT JOIN punctual.jobs j ON j.id = r.job_id
WHERE a.run_id = $2 AND a.due_at <= now() AND a.tenant NOT IN (SELECT tenant FROM busy) AND ` + maySend + `
ORDER BY a.due_at LIMIT 1 FOR NO KEY UPDATE OF a SKIP LOCKED`

// composeApproval writes the message in the transaction that takes the lease. A notice of a step that waits no more is
// dropped.
func (s *Teller) composeApproval(ctx context.Context, tx *pg.Tx, a *approvalNotice) error {
	if !a.live {
		return forgetApproval(ctx, tx, a.Outgoing)
	}
	found, err := s.definitions.Read(ctx, tx, definitions.One(a.job, a.Tenant))
	if err != nil {
		return err
	}
	wait, lease := notice.Lease, &a.ID
	job := found.Job(a.job)
	switch {
	case job == nil:
		s.options.Log.Error(
			"this version of Punctual cannot tell that a step waits for approval; it is tried again in a minute",
			"run", a.Run, "job", a.job.Job, "version", a.job.Version, "error", found.Why(a.job))
		wait, lease = definitions.RetryIn, nil
	case job.Approval == nil || int(a.Nth) >= len(job.Approval.Notify):
		return forgetApproval(ctx, tx, a.Outgoing)
	default:
		a.To = job.Approval.Entries()[a.Nth].Recipient()
		if err := s.writeApproval(a, job); err != nil {
			return err
		}
	}
	return pg.Exec(ctx, tx, `
		UPDATE punctual.approval_notices SET lease = $3, due_at = now() + $4 WHERE run_id = $1 AND nth = $2`,
		a.Run, a.Nth, lease, wait)
}

func (s *Teller) writeApproval(a *approvalNotice, job *domain.Job) (err error) {
	link := s.link("/approvals/" + a.Run.String() + "?token=" + domain.ApprovalToken(a.key, a.Run, int(a.Nth)))
	m := notice.AboutJob(domain.News{
		Job: a.name, JobID: a.job.Job, Tenant: a.tenant, Labels: s.labels(job.Labels), Link: link,
		Events: []domain.NewsEvent{{
			Event: domain.EventApproval, Count: 1, FirstAt: a.since.UTC(), LastAt: a.since.UTC(), Step: a.job.Step,
			Until: new(a.until.UTC()),
			Runs: []domain.NewsRun{{
				ID: a.Run, ScheduledFor: a.slot.UTC(), HappenedAt: a.since.UTC(), Link: s.link("/runs/" + a.Run.String()),
			}},
		}},
	})
	m.Subjects[0].Key = a.Run.String()
	a.Jobs, a.Headline, a.Events, a.Newest = []uuid.UUID{a.job.Job}, notice.Headline(m), m.Events(), a.since
	a.Body, err = notice.Write(m, a.To, false, a.now)
	return err
}

func forgetApproval(ctx context.Context, q pg.Querier, m notice.Outgoing) error {
	return pg.Exec(ctx, q, `DELETE FROM punctual.approval_notices WHERE run_id = $1 AND nth = $2`, m.Run, m.Nth)
}

// approvalAnswered writes how a recipient answered the notice of a step that waits for approval.
func (s *Teller) approvalAnswered(ctx context.Context, m notice.Outgoing, a notice.Answer) error {
	return s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if a.Arrival != notice.Delivered {
			return s.approvalFailed(ctx, tx, m, a)
		}
		line := lineOf(m.Tenant, m.To)
		if err := pg.Exec(ctx, tx, `
			INSERT INTO punctual.notice_lines (id, tenant, format, url, secret, template) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT DO NOTHING`, line, m.Tenant, m.To.Format, m.To.URL, m.To.Secret, m.To.Template); err != nil {
			return err
		}
		if err := pg.Exec(ctx, tx, insertMessage,
			m.ID, line, m.Tenant, m.Newest, m.Headline, m.Events, m.Jobs); err != nil {
			return err
		}
		return forgetApproval(ctx, tx, m)
	})
}

func (s *Teller) approvalFailed(ctx context.Context, tx *pg.Tx, m notice.Outgoing, a notice.Answer) error {
	var failures int
	err := tx.QueryRow(ctx, `
		UPDATE punctual.approval_notices SET failures = failures + 1 WHERE run_id = $1 AND nth = $2 AND lease = $3
		RETURNING failures`, m.Run, m.Nth, m.ID).Scan(&failures)
	if some, err := pg.Some(err); !some { // another replica has it
		return err
	}
	s.options.Log.Error("a recipient was not told that a step waits for approval", "format", m.To.Format, "url", m.To.URL,
		"run", m.Run, "failures", failures, "http_status", a.Status, "error", a.Error)
	if a.Arrival == notice.Refused && failures >= mostRefusals {
		return forgetApproval(ctx, tx, m)
	}
	return pg.Exec(ctx, tx, `
		UPDATE punctual.approval_notices SET due_at = now() + $3, lease = NULL WHERE run_id = $1 AND nth = $2`,
		m.Run, m.Nth, max(a.RetryAfter, Backoff(failures)))
}
