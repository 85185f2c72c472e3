package store_test

import (
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
)

// The test does what a replica and its API do all day long, except the lists of jobs and runs, in all plan modes and
// with several states of the statistics. Postgres counts a sequential scan when it begins, whether or not it reaches
// the table's end.
func TestDailyWorkScansNoLargeTable(t *testing.T) {
	t.Parallel()
	pgtest.Exhaustive(t, "its tables are large")
	type state struct {
		name    string
		arrange func(c Replica)
	}
	analyse := func(c Replica) { c.Exec(`ANALYZE`) }
	for name, states := range map[string][]state{ // one after the other in one database
		"first never analysed": {
			{"never analysed", Replica.Grow},
			{"drained and analysed", func(c Replica) { c.Drain(); analyse(c) }},
			{"drained, analysed and full again", Replica.Grow},
		},
		"first analysed": {
			{"analysed when empty", func(c Replica) { analyse(c); c.Grow() }},
			{"analysed", analyse},
			{"drained", Replica.Drain},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Clone(t)
			for _, state := range states {
				t.Run(state.name, func(t *testing.T) {
					c := OpenReplica(t, dsn)
					state.arrange(c)
					c.Close()
					watch := OpenReplica(t, dsn)
					for _, plans := range PlanModes {
						watch.WantNoScans("&plan_cache_mode="+plans, Replica.Day)
					}
				})
			}
		})
	}
}
