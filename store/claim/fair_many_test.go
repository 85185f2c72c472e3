package claim_test

import (
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/claim"
)

// The search for waiting tenants looks only at tenants with work in a lane, however many other tenants and queues
// exist.
func TestWhoWaitsIsFoundAmongThousandsOfTenantsAndAHundredQueues(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	c.Exec(`INSERT INTO punctual.tenants (name) SELECT 'tenant-' || i FROM generate_series(1, 5000) i`)
	c.Exec(`INSERT INTO punctual.queues (name) SELECT 'queue-' || i FROM generate_series(1, 99) i`)
	c.Exec(`ALTER TABLE punctual.ready DROP CONSTRAINT IF EXISTS ready_job_id_fkey`)
	// Every tenant has a job in one queue. Five tenants have a slot due now, six have a slot due since a minute ago, and
	// five have runs that wait.
	c.Exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), at, at, id, 1, $1::smallint * 4 + 1, true
		FROM (SELECT id, now() + CASE WHEN id % 1000 = 0 THEN interval '0'
					WHEN id % 1000 = 1 THEN interval '-1 min'
					ELSE interval '1 hour' END AS at
			FROM punctual.tenants) s`, c.Queue)
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), gen_random_uuid(),
			now() + CASE WHEN id % 1000 = 0 THEN interval '0' ELSE interval '1 hour' END,
			id, $1::smallint * 4 + lane
		FROM punctual.tenants, unnest(ARRAY[1, 3]) AS lane`, c.Queue)
	queues := Column[int16](c.Fixture, `SELECT id FROM punctual.queues`)
	for _, state := range []string{"never analysed", "analysed"} {
		found, slots := map[domain.Work]int{}, map[int32]bool{}
		for of := domain.WorkDue; of <= domain.WorkOrdered; of++ {
			sql, arguments := claim.Contending(of, queues, nil)
			if p := c.Explain(sql, arguments[1:]...); p.Hit+p.Read > 100_000 {
				t.Errorf("%s, work %v: %d pages", state, of, p.Hit+p.Read)
			}
			waiting, err := c.Claims.Contenders(t.Context(), of, queues)
			if err != nil {
				t.Error(err)
			}
			found[of] = len(waiting)
			for _, c := range waiting {
				if of == domain.WorkDue || of == domain.WorkLate {
					slots[c.Tenant] = true // a slot that is due now is late some seconds later
				}
			}
		}
		if len(slots) != 11 || found[domain.WorkReady] != 5 || found[domain.WorkOrdered] != 5 {
			t.Errorf("%s: %d tenants with slots, who waits: %v", state, len(slots), found)
		}
		c.Exec(`ANALYZE punctual.schedules, punctual.ready, punctual.tenants`)
	}
}
