package claim

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/seal"
)

// unsealed are bodies of runs, with their headers, that are not sealed: they were given in SQL, or before payloads
// were.
type unsealed struct {
	runs    []uuid.UUID
	bodies  []seal.Bytes
	headers []seal.JSON
}

func (p *unsealed) add(run uuid.UUID, body []byte, headers seal.JSON) {
	p.runs, p.bodies, p.headers = append(p.runs, run), append(p.bodies, body), append(p.headers, headers)
}

func (p *unsealed) seal(b *pgx.Batch) {
	if len(p.runs) == 0 {
		return
	}
	dayOfRuns(p.runs).queue(b, `
		UPDATE {run_data} d SET body = u.body, headers = u.headers::jsonb
		FROM unnest($1::uuid[], $2::bytea[], $3::text[]) AS u(id, body, headers)
		WHERE d.run_id = u.id{prune d}`, p.runs, p.bodies, p.headers)
}
