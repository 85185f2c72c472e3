package events

import (
	"context"

	"github.com/google/uuid"

	"punctual/store/pg"
)

// End ends the fan-out of an event that fails each time: subscribers that it has not come to get no run.
func (s *Events) End(ctx context.Context, id uuid.UUID) error {
	return pg.Wrap("ending the fan-out of event "+id.String(),
		pg.Exec(ctx, s.db.Callers, `
			UPDATE punctual.events SET turn_at = NULL, ended_at = clock_timestamp()
			WHERE id = $1 AND turn_at IS NOT NULL`, id))
}
