package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// readPausers reads the actors who paused the job, by the instant of the pause. A job has about as many entries as
// versions.
func (e *explaining) readPausers(ctx context.Context) error {
	rows, err := e.q.Query(ctx, `
		SELECT a.at, a.actor_kind, coalesce(a.actor, ''), coalesce(k.name, '')
		FROM `+auditTables+`
		WHERE a.job_id = $1 AND a.tenant = $2 AND a.after ->> 'state' = 'paused'`, e.job, e.tenant)
	if err != nil {
		return fmt.Errorf("reading who paused job %s: %w", e.job, err)
	}
	e.pausers = map[int64]string{}
	var at time.Time
	var r AuditRecord
	_, err = pgx.ForEachRow(rows, []any{&at, &r.ActorKind, &r.Actor, &r.ActorName}, func() error {
		e.pausers[at.UnixMicro()] = r.who()
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading who paused job %s: %w", e.job, err)
	}
	return nil
}

// who names the actor for people. It is empty where the actor is unknown.
func (r AuditRecord) who() string {
	switch {
	case r.Actor == "":
		return ""
	case r.ActorName != "":
		return fmt.Sprintf("%s %s (%s)", r.ActorKind, r.ActorName, r.Actor)
	}
	return fmt.Sprintf("%s %s", r.ActorKind, r.Actor)
}
