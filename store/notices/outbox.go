package notices

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/aside"
	"punctual/store/pg"
)

// OutboxDue is SQL for whether a message may be sent now.
const OutboxDue = `EXISTS (SELECT FROM punctual.outbox WHERE due_at <= now() AND held_until <= now())`

// How many messages of a pipeline and a tenant are under way at once, on all replicas. It leaves senders to others
// when recipients are slow. Recipients of states have one message each under way, and as many as they are.
const (
	mostBatches   = 2
	mostApprovals = 4
)

// recipientID returns the id of a recipient in the outbox.
func recipientID(p notice.Pipeline, tenant int32, to jobspec.Recipient, more ...any) uuid.UUID {
	return uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%s %d %q %q %q %q %v",
		p, tenant, to.Format, to.URL, to.Secret, to.Template, more))
}

// recipient is a locked row of the outbox.
type recipient struct {
	notice.Outgoing
	now     time.Time
	tenant  string     // name
	message *uuid.UUID // that is sent again as it was

	sent   map[string]time.Time // of states: when subjects were told of
	causes map[string]cause     // of states: that are open
	lookAt *time.Time           // of states: when a cause may be over; nil: none is open

	leftOut int64 // of lifecycle: events that no batch has
	batched int64 // of lifecycle: events of the message, with those that it says were left out

	nth int // of approvals: place of the recipient
}

// dueRecipients are the recipients to whom something may be sent now.
var dueRecipients = aside.Rows{
	Kind: aside.Recipient, Table: "outbox", ID: "id", Are: "to.due_at <= now() AND to.held_until <= now()",
}

// Claim takes the message for the recipient that has waited longest, for this replica to send; nil: there is none now.
// batches says whether that may be a batch of lifecycle events. Until Answered says that it arrived, everything in the
// message stays in the database. If this replica is lost, another one sends it after the lease.
func (s *Notifier) Claim(ctx context.Context, batches bool) (m *notice.Outgoing, err error) {
	for again := true; again && err == nil; {
		var to recipient
		again, err = s.claim(ctx, batches, &to)
		if to.Recipient == uuid.Nil && s.aside.SetUnreadable(ctx, dueRecipients, err) {
			again, err = true, nil
			continue
		}
		if again, err = s.aside.One(ctx, aside.Recipient, to.Recipient, again, err); to.Body != nil && !again {
			m = &to.Outgoing
		}
	}
	if err != nil {
		return nil, fmt.Errorf("claiming a notice: %w", err)
	}
	return m, nil
}

// maySend is SQL for whether anything of a tenant t of the deployment d may be sent.
const maySend = `t.frozen_at IS NULL AND d.frozen_at IS NULL
  AND NOT punctual.is_copy(d.database_name, d.system_identifier)`

// claim locks the recipient that has waited longest, and composes its message. It reports whether there was nothing to
// say: then others may be due.
func (s *Notifier) claim(ctx context.Context, batches bool, to *recipient) (again bool, err error) {
	err = s.db.Chores.InTx(ctx, pg.Everybody, func(tx *pg.Tx) error {
		if err := pg.Exec(ctx, tx, pg.Briskly); err != nil { // and so reads no row of another recipient
			return err
		}
		err := tx.QueryRow(ctx, `
			WITH busy AS MATERIALIZED (
			    SELECT tenant, pipeline FROM punctual.outbox
			    WHERE under_way AND pipeline <> 'states' AND held_until > now()
			    GROUP BY tenant, pipeline HAVING count(*) >= CASE pipeline WHEN 'lifecycle' THEN $3::int ELSE $4 END)
			SELECT o.id, o.pipeline, o.tenant, t.name, o.format, o.url, o.secret, o.template, o.message, o.sent, o.causes,
			       o.body, o.left_out, o.batched, coalesce(o.run_id, $5), coalesce(o.nth, 0), now()
			FROM punctual.outbox o
			JOIN punctual.tenants t ON t.id = o.tenant
			CROSS JOIN punctual.deployment d
			WHERE o.due_at <= now() AND o.held_until <= now() AND o.id <> ALL($1::uuid[])
			  AND (o.pipeline <> 'lifecycle' OR $2) AND `+maySend+`
			  AND NOT EXISTS (SELECT FROM busy b WHERE b.tenant = o.tenant AND b.pipeline = o.pipeline)
			ORDER BY o.due_at LIMIT 1 FOR NO KEY UPDATE OF o SKIP LOCKED`,
			s.aside.Resting(aside.Recipient), batches, mostBatches, mostApprovals, uuid.Nil).Scan(
			&to.Recipient, &to.Pipeline, &to.Tenant, &to.tenant, &to.To.Format, &to.To.URL, &to.To.Secret, &to.To.Template,
			&to.message, &to.sent, &to.causes, &to.Body, &to.leftOut, &to.batched, &to.Run, &to.nth, &to.now)
		if some, err := pg.Some(err); !some {
			return err
		}
		to.ID = domain.NewRunID(time.Now())
		if err := s.compose(ctx, tx, to); err != nil {
			return err
		}
		if again = to.Body == nil; again {
			return pg.Exec(ctx, tx, setDue, to.Recipient)
		}
		return pg.Exec(ctx, tx, `
			UPDATE punctual.outbox
			SET message = $2, under_way = true, held_until = now() + $3,
			    body = CASE pipeline WHEN 'lifecycle' THEN $4::bytea END
			WHERE id = $1`, to.Recipient, to.ID, notice.Lease, to.Body)
	})
	return again, err
}

// compose writes the message, and what is in it, in the transaction that takes the lease.
func (s *Notifier) compose(ctx context.Context, tx *pg.Tx, to *recipient) error {
	switch to.Pipeline {
	case notice.Lifecycle:
		return to.composeBatch(ctx, tx)
	case notice.Approvals:
		return s.composeApproval(ctx, tx, to)
	case notice.States:
	}
	return s.composeStates(ctx, tx, to)
}

// setDue sets when there is something to send to a recipient.
const setDue = `
UPDATE punctual.outbox o
SET due_at = CASE pipeline
        WHEN 'states' THEN
            least(o.look_at, (SELECT min(s.tell_at) FROM punctual.notice_states s WHERE s.recipient_id = o.id))
        WHEN 'lifecycle' THEN
            (SELECT now() WHERE EXISTS (SELECT FROM punctual.lifecycle_events e WHERE e.recipient_id = o.id))
        ELSE o.due_at END
WHERE o.id = $1`
