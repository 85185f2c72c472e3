package aside

import (
	"context"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/store/pg"
)

// Chore is the name of the chore that tries again, by itself, what claims and finishes have set aside. What a chore has
// set aside that chore tries again.
const Chore = "set-aside"

const ofClaims = `kind IN ('slot', 'run', 'outcome')`

// AnyDue is SQL that is true if something is to be tried again by itself.
const AnyDue = `EXISTS (SELECT FROM punctual.set_aside WHERE retry_at <= now() AND ` + ofClaims + `)`

// takeDue takes items that are to be tried again, so that no other replica does so too. Their next try comes after
// twice the pause.
const takeDue = `
UPDATE punctual.set_aside s
SET tried_at = now(), retry_at = now() + least($1::interval * 2 ^ least(s.tries, 20), $2::interval)
FROM (SELECT kind, item FROM punctual.set_aside WHERE retry_at <= now() AND ` + ofClaims + ` ORDER BY retry_at LIMIT 100
      FOR UPDATE SKIP LOCKED) due
WHERE s.kind = due.kind AND s.item = due.item
RETURNING s.kind, s.item, s.tenant, coalesce(s.job_id, '00000000-0000-0000-0000-000000000000')`

// Due takes the items that are to be tried again, each by itself.
func (a *Aside) Due(ctx context.Context) ([]Item, error) {
	items, err := pg.All(ctx, a.db.Chores, pgx.RowToStructByPos[Item], takeDue, FirstRetry, LastRetry)
	return items, pg.Wrap("taking what is to be tried again", err)
}

func split(known *string) []string {
	if known == nil || *known == "" {
		return nil
	}
	return strings.Split(*known, ",")
}

func parse(text string) (kind Kind, id uuid.UUID, rests bool) {
	words := strings.Fields(text)
	return Kind(words[0]), uuid.MustParse(words[1]), len(words) > 2
}
