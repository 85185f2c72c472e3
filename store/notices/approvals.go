package notices

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/definitions"
	"punctual/store/pg"
)

// A step that waits for approval is told of in a message of its own, to each recipient of its approval.notify: what is
// collected and told together with other things would come too late, and a link is for one step. So each of them has a
// row of its own in the outbox.

// insertApprovals writes what is to be sent about steps that wait for approval, for runs that this transaction has
// written.
const insertApprovals = `
INSERT INTO punctual.outbox (id, tenant, pipeline, format, url, template, run_id, nth, due_at)
SELECT u.id, r.tenant, 'approvals', u.format, u.url, u.template, r.id, u.nth, now()
FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::text[])
     AS u(id, run_id, nth, format, url, template)
JOIN punctual.runs r ON r.id = u.run_id
WHERE r.id = ANY($2::uuid[]) AND r.xmin = pg_current_xact_id()::xid AND r.status = 'running' AND r.reason IS NULL
ON CONFLICT DO NOTHING`

// asked is a recipient who is asked to approve a step.
type asked struct {
	id, run uuid.UUID
	nth     int
	to      jobspec.Recipient
}

// queueApprovals queues the notices of those outcomes after which steps wait for approval.
func (f *Following) queueApprovals(b *pgx.Batch, outcomes []domain.Outcome) {
	var all []asked
	for _, o := range outcomes {
		if o.Verdict != domain.Await || o.Job.Approval == nil {
			continue
		}
		for nth, entry := range o.Job.Approval.Entries() {
			to := entry.Recipient()
			all = append(all, asked{recipientID(notice.Approvals, o.Job.Tenant, to, o.RunID, nth), o.RunID, nth, to})
		}
	}
	if len(all) == 0 {
		return
	}
	b.Queue(insertApprovals,
		pg.Column(all, func(a asked) uuid.UUID { return a.id }), pg.Column(all, func(a asked) uuid.UUID { return a.run }),
		pg.Column(all, func(a asked) int { return a.nth }),
		pg.Column(all, func(a asked) string { return string(a.to.Format) }),
		pg.Column(all, func(a asked) string { return a.to.URL }),
		pg.Column(all, func(a asked) string { return a.to.Template }))
	f.now = true
}

// waitingStep is a step that waits for approval.
type waitingStep struct {
	job                definitions.Version
	name               string // of the job
	key                []byte // of tokens
	slot, since, until time.Time
}

const selectStep = `
SELECT r.job_id, r.job_version, r.step, coalesce(j.name, ''), k.key, r.scheduled_for, coalesce(r.started_at, now()),
       y.due_at
FROM punctual.ready y
CROSS JOIN punctual.run_token_key k
CROSS JOIN LATERAL punctual.runs_of(ARRAY[y.run_id]) r
LEFT JOIN punctual.jobs j ON j.id = r.job_id
WHERE y.run_id = $1 AND y.waits = 'person'`

// composeApproval writes the notice of a step that waits for approval. That of a step that waits no more is dropped.
func (s *Notifier) composeApproval(ctx context.Context, tx *pg.Tx, to *recipient) error {
	var step waitingStep
	err := tx.QueryRow(ctx, selectStep, to.Run).Scan(
		&step.job.Job, &step.job.Version, &step.job.Step, &step.name, &step.key, &step.slot, &step.since, &step.until)
	if some, err := pg.Some(err); err != nil {
		return err
	} else if !some {
		return pg.Exec(ctx, tx, dropRow, to.Recipient)
	}
	found, err := s.definitions.Read(ctx, tx, definitions.One(step.job, to.Tenant))
	if err != nil {
		return err
	}
	if job := found.Job(step.job); job != nil {
		return s.writeApproval(to, step, job)
	}
	s.options.Log.Error(
		"this version of Punctual cannot send notices about steps that wait for approval; it is tried again in a minute",
		"run", to.Run, "job", step.job.Job, "version", step.job.Version, "error", found.Why(step.job))
	return pg.Exec(ctx, tx, `UPDATE punctual.outbox SET held_until = now() + $2 WHERE id = $1`,
		to.Recipient, definitions.RetryIn)
}

func (s *Notifier) writeApproval(to *recipient, step waitingStep, job *domain.Job) (err error) {
	link := s.link("/approvals/" + to.Run.String() + "?token=" + domain.ApprovalToken(step.key, to.Run, to.nth))
	m := notice.AboutJob(domain.Digest{
		Job: step.name, JobID: step.job.Job, Tenant: to.tenant, Labels: s.labels(job.Labels), Link: link,
		Events: []domain.DigestEvent{{
			Event: jobspec.EventApproval, Count: 1, FirstAt: step.since.UTC(), LastAt: step.since.UTC(), Step: step.job.Step,
			Until: new(step.until.UTC()),
			Runs: []domain.DigestRun{{
				ID: to.Run, ScheduledFor: step.slot.UTC(), HappenedAt: step.since.UTC(), Link: s.link("/runs/" + to.Run.String()),
			}},
		}},
	})
	m.Subjects[0].Key = to.Run.String()
	to.Parts = []notice.Part{{Job: step.job.Job}}
	to.Headline, to.Events, to.Newest = notice.Headline(m), m.Events(), step.since
	to.Body, err = notice.Write(m, to.To, false, to.now)
	return err
}
