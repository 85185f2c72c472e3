package history_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/store/history"
)

// Verify compares each run with the feed once, whatever the planner thinks of how long that is. (After 40,000 runs of a
// tenant with a feed it took minutes.)
func TestVerifyComparesEachRunWithItsFeedOnce(t *testing.T) {
	const n = 2000
	c := OpenReplica(t, pgtest.Clone(t))
	c.Exec(`SELECT punctual.begin_changes(ARRAY[1])`)
	c.Exec(`UPDATE punctual.change_feeds SET since = now() - interval '1 day'`)
	everySecond(t.Context(), t, c.Store, n)
	c.WantCount(n-1, "runs in the feed", `SELECT coalesce(sum(cardinality(runs)), 0) FROM punctual.changes`)
	c.Exec(`SET enable_hashjoin = off`)
	c.Exec(`SET enable_mergejoin = off`)
	now := time.Now()
	plan := c.Explain(history.LackingInFeeds, time.Duration(0), 0, (*uuid.UUID)(nil), "", uuid.Nil, now.Add(-time.Hour),
		now.Add(time.Hour), 100)
	if compared := plan.AllCompared(); compared > 10*n {
		t.Errorf("%.0f pairs are compared", compared)
	}
}
