package notices

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Drop forgets what is to be told of a job, because it cannot be collected.
func (s *Notifier) Drop(ctx context.Context, job uuid.UUID) error {
	return pg.Wrap("dropping the notices of a job",
		pg.Exec(ctx, s.db.Callers, `DELETE FROM punctual.notices WHERE job_id = $1`, job))
}

// DropRecipient forgets what is to be told to a recipient, because no message can be made of it.
func (s *Notifier) DropRecipient(ctx context.Context, id uuid.UUID) error {
	var b pgx.Batch
	b.Queue(`SELECT FROM punctual.outbox WHERE id = $1 FOR NO KEY UPDATE`, id)
	b.Queue(`DELETE FROM punctual.notice_states WHERE recipient_id = $1`, id)
	b.Queue(`DELETE FROM punctual.lifecycle_events WHERE recipient_id = $1`, id)
	b.Queue(`
		UPDATE punctual.outbox
		SET due_at = NULL, causes = DEFAULT, message = NULL, body = NULL, left_out = left_out + batched, batched = 0
		WHERE id = $1`, id)
	b.Queue(`DELETE FROM punctual.outbox WHERE id = $1 AND pipeline = 'approvals'`, id)
	return pg.Wrap("dropping the notices of a recipient", s.db.Callers.SendBatch(ctx, &b).Close())
}

// Forget deletes messages that recipients took more than 8 days ago, recipients that were sent none since, those that
// took none in all that time and of which nothing is open, and those of tenants that were deleted a day ago.
func (s *Notifier) Forget(ctx context.Context) (forgotten int, left bool, err error) {
	forgotten, left, err = pg.ForgetOld(
		ctx, s.db.Chores, "notice_messages", "delivered_at", []string{"id"}, 8*24*time.Hour)
	if err != nil || left {
		return forgotten, left, err
	}
	return forgotten, false, pg.Wrap("removing recipients of notices", pg.Exec(ctx, s.db.Chores, `
		DELETE FROM punctual.outbox o
		WHERE o.tenant IN (SELECT t.id FROM punctual.tenants t WHERE t.deleted_at < now() - interval '1 day')
		   OR (o.due_at IS NULL AND o.held_until < now() - interval '8 days'
		       OR o.pipeline = 'states' AND o.failing_since < now() - interval '8 days')
		  AND NOT EXISTS (SELECT FROM punctual.notice_states s WHERE s.recipient_id = o.id)
		  AND NOT EXISTS (SELECT FROM punctual.lifecycle_events e WHERE e.recipient_id = o.id)`))
}
