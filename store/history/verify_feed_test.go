package history_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store/history"
)

// Verify compares each run with the feed once, whatever the planner thinks of how long that is, and those of other
// tenants not at all. (After 40,000 runs of tenants with and without a feed it took minutes.)
func TestVerifyComparesEachRunWithItsFeedOnce(t *testing.T) {
	const n = 2000
	c := OpenReplica(t, pgtest.Clone(t))
	everySecond(t.Context(), t, c.Store, n)
	c.Exec(`INSERT INTO punctual.tenants (name) VALUES ('another')`)
	c.Exec(`UPDATE punctual.runs SET tenant = 2 WHERE extract(epoch FROM scheduled_for)::bigint % 2 = 0`)
	c.Exec(`SELECT punctual.begin_changes(ARRAY[1])`)
	c.Exec(`UPDATE punctual.change_feeds SET since = now() - interval '1 day'`)
	c.Exec(`INSERT INTO punctual.changes (feed, tenant, runs)
		SELECT f.id, 1, array_agg(r.id) FROM punctual.change_feeds f JOIN punctual.runs r ON r.tenant = f.tenant GROUP BY f.id`)
	for _, node := range []string{"hashjoin", "mergejoin", "indexscan", "bitmapscan"} {
		c.Exec(`SET enable_` + node + ` = off`)
	}
	now := time.Now()
	for name, sql := range history.Feeds {
		plan := c.Explain(sql, time.Duration(0), 0, (*uuid.UUID)(nil), "", uuid.Nil, now.Add(-time.Hour),
			now.Add(time.Hour), 100)
		if compared := plan.AllCompared(); compared > 10*n {
			t.Errorf("%s: %.0f pairs are compared", name, compared)
		}
	}
}
