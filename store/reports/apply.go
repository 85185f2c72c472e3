package reports

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/store/aside"
	"punctual/store/claim"
	"punctual/store/pg"
)

// The reports that are to be applied. They are looked at in the order in which they were made, so that one that cannot
// be applied holds up no other.
const (
	batch = 100

	// Any is true if a report is to be applied.
	Any = `EXISTS (SELECT FROM punctual.reports WHERE applied_at IS NULL)`

	// Fresh is true if one is to be applied that was made a moment ago. The bound keeps dead index entries out of
	// the scan.
	Fresh = `EXISTS (SELECT FROM punctual.reports WHERE applied_at IS NULL AND reported_at > now() - interval '5 s')`

	selectReports = `
SELECT run_id, reported_at FROM punctual.reports
WHERE applied_at IS NULL AND (reported_at, run_id) > ($1, $2) AND run_id <> ALL($4::uuid[])
ORDER BY reported_at, run_id LIMIT $3`
)

// reported are the runs with a report that is to be applied.
var reported = aside.Rows{Kind: aside.Outcome, Table: "reports", ID: "run_id", Are: "r.applied_at IS NULL"}

// Reports applies and forgets what targets have reported.
type Reports struct {
	db     *pg.DB
	claims *claim.Claims
	aside  *aside.Aside
}

// New returns what targets have reported in a database.
func New(db *pg.DB, claims *claim.Claims, aside *aside.Aside) *Reports {
	return &Reports{db: db, claims: claims, aside: aside}
}

// Apply ends runs as their targets have reported, for attempts whose replicas do not do so at once: their answer has
// not come, or will never come. Several replicas may do it.
func (s *Reports) Apply(ctx context.Context) (left bool, err error) {
	var since time.Time
	var after uuid.UUID
	for n := batch; n == batch; {
		var ids []uuid.UUID
		limited, cancel := context.WithTimeout(ctx, aside.Whole)
		rows := pg.Query(limited, s.db.Runs, selectReports, since, after, batch, s.aside.Resting(aside.Outcome))
		err := pg.Each(rows, []any{&after, &since}, func() { ids = append(ids, after) })
		cancel()
		if s.aside.SetUnreadable(ctx, reported, err) {
			return true, nil
		}
		if n = len(ids); err == nil && n > 0 {
			err = s.claims.EndReported(ctx, ids)
		}
		if err != nil {
			return false, fmt.Errorf("ending runs as their targets have reported: %w", err)
		}
	}
	return false, nil
}
