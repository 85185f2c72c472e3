package notices

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Drop forgets what is to be told of a job, because it cannot be collected.
func (s *Teller) Drop(ctx context.Context, job uuid.UUID) error {
	return pg.Wrap("dropping the notices of a job",
		pg.Exec(ctx, s.db.Callers, `DELETE FROM punctual.notices WHERE job_id = $1`, job))
}

// DropLine forgets what is to be told to a recipient, because no message can be made of it: by its line, or by the run
// of the step that waits for approval.
func (s *Teller) DropLine(ctx context.Context, line uuid.UUID) error {
	var b pgx.Batch
	b.Queue(`SELECT FROM punctual.notice_lines WHERE id = $1 FOR NO KEY UPDATE`, line)
	b.Queue(`DELETE FROM punctual.notice_subjects WHERE line_id = $1`, line)
	b.Queue(`UPDATE punctual.notice_lines SET due_at = NULL, causes = DEFAULT WHERE id = $1`, line)
	b.Queue(`DELETE FROM punctual.approval_notices WHERE run_id = $1`, line)
	b.Queue(`DELETE FROM punctual.lifecycle_events WHERE line_id = $1`, line)
	b.Queue(`
		UPDATE punctual.lifecycle_lines SET message = NULL, body = NULL, left_out = left_out + told, told = 0 WHERE id = $1`,
		line)
	return pg.Wrap("dropping the notices of a recipient", s.db.Callers.SendBatch(ctx, &b).Close())
}
