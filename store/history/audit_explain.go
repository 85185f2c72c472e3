package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/pg"
)

// readPausers reads the actors who paused the job, by the instant of the pause. A job has about as many entries as
// versions.
func (e *explaining) readPausers(ctx context.Context) error {
	rows := pg.Query(ctx, e.q, `
		SELECT a.at, a.actor_kind, coalesce(a.actor, ''), coalesce(k.name, '')
		FROM `+audit.Tables+`
		WHERE a.job_id = $1 AND a.tenant = $2 AND a.after ->> 'state' = 'paused'`, e.job, e.tenant)
	e.pausers = map[int64]string{}
	var at time.Time
	var kind audit.ActorKind
	var actor, key string
	_, err := pgx.ForEachRow(rows, []any{&at, &kind, &actor, &key}, func() error {
		e.pausers[at.UnixMicro()] = audit.Text(kind, actor, key)
		return nil
	})
	return pg.Wrap("reading who paused job "+e.job.String(), err)
}

// pauser returns the actor who paused the job by a version of it, for people. Nil: that is not known.
func (e *explaining) pauser(v domain.Version) *string {
	return pg.OrNull(e.pausers[v.From.UnixMicro()])
}
