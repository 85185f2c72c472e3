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

// DropLine forgets what is to be told to a recipient, because no message can be made of it.
func (s *Teller) DropLine(ctx context.Context, line uuid.UUID) error {
	var b pgx.Batch
	b.Queue(`SELECT FROM punctual.notice_lines WHERE id = $1 FOR NO KEY UPDATE`, line)
	b.Queue(`DELETE FROM punctual.notice_subjects WHERE line_id = $1`, line)
	b.Queue(`UPDATE punctual.notice_lines SET due_at = NULL, causes = DEFAULT WHERE id = $1`, line)
	return pg.Wrap("dropping the notices of a recipient", s.db.Callers.SendBatch(ctx, &b).Close())
}
