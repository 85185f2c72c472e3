package claim_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
)

// blocks counts the blocks of tables and indexes that a connection has read, from memory or not.
const blocks = `
SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0)
           + coalesce(toast_blks_hit + toast_blks_read + tidx_blks_hit + tidx_blks_read, 0))::bigint
FROM pg_statio_user_tables WHERE schemaname = 'punctual'`

// A dated run costs at its claim the same number of blocks, within a tenth, however many others are pending. PENDING=…
// sets how many these are.
func TestAPendingDatedRunCostsOthersNothing(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	pending := 50_000
	if text := os.Getenv("PENDING"); text != "" {
		pending, _ = strconv.Atoi(text)
	}
	c := OpenReplica(t, pgtest.Clone(t))
	c.Create("job", Never)
	c.Create("others", Never)
	// fires is how many blocks a claim of a hundred dated runs reads, with the finish of the runs before.
	fires := func() (least int64) {
		for range 5 {
			c.Exec(`VACUUM punctual.dated`) // dead rows cost as many blocks as there are, which chance decides
			c.Pend("job", 100, -time.Second, 100*time.Millisecond)
			read := func() int64 {
				c.Exec(`SELECT pg_stat_force_next_flush()`)
				c.Exec(`SELECT pg_stat_clear_snapshot()`)
				return Value[int64](c.Fixture, blocks)
			}
			before := read()
			b := c.ClaimReady(100)
			if after := read() - before; least == 0 || after < least {
				least = after
			}
			if len(b.Runs) != 100 {
				t.Fatalf("%d runs were claimed", len(b.Runs))
			}
			c.FinishAll(b.Runs)
		}
		return least
	}
	for range 4 { // until the indexes of runs have their height
		fires()
	}
	alone := fires()
	c.Pend("others", pending, time.Hour, 30*24*time.Hour)
	c.Exec(`ANALYZE punctual.dated`)
	among := fires()
	t.Logf("a hundred runs: %d blocks alone, %d among %d", alone, among, pending)
	if float64(among) > 1.1*float64(alone) {
		t.Errorf("a hundred runs cost %d blocks alone, and %d among %d that are pending", alone, among, pending)
	}
}
