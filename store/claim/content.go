package claim

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/pg"
	"punctual/store/seal"
)

// contents are what runs send: their bodies, with their headers, and the definitions of their jobs. It is a subject.
type contents struct {
	decides
	*lockedRuns
	unsealed []unsealed
}

// unsealed is a run whose body and headers are not sealed: they were given in SQL, or before payloads were.
type unsealed struct {
	run     uuid.UUID
	body    seal.Bytes
	headers seal.JSON
}

var unsealedColumns = pg.Columns[unsealed]{
	pg.Col("id", "uuid", func(u unsealed) uuid.UUID { return u.run }),
	pg.Col("body", "bytea", func(u unsealed) seal.Bytes { return u.body }),
	pg.Col("headers", "text", func(u unsealed) seal.JSON { return u.headers }),
}

// decide lets runs go on whose body is read, and whose definition this binary knows.
func (c *contents) decide(r *waitingRun) verdict {
	switch {
	case r.heavy:
		c.more = true
		return verdict{fate: stays}
	case r.Job == nil:
		c.claims.options.Log.Error("a run cannot be sent by this version of Punctual; it is tried again in a minute",
			"run", r.RunID, "job", r.key.Job, "version", r.key.Version, "error", c.found.Why(r.key))
		return again(definitions.RetryIn)
	}
	return goesOn
}

var sealBodies = `
UPDATE {run_data} d SET body = u.body, headers = u.headers::jsonb
FROM ` + unsealedColumns.Unnest("u") + `
WHERE d.run_id = u.id{prune d}`

// write seals what is not sealed.
func (c *contents) write(_ context.Context, b *pgx.Batch) error {
	if len(c.unsealed) > 0 {
		on := days.Common(pg.Column(c.unsealed, func(u unsealed) uuid.UUID { return u.run })...)
		on.Queue(b, sealBodies, unsealedColumns.Args(c.unsealed)...)
	}
	return nil
}
