package claim_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
)

// draws asks for slots and for starts, and returns the allowance.
func draws(c Replica, keep, slots, starts int) admit.Allowance {
	c.T.Helper()
	wish := admit.Wish{Tenant: c.Tenant, Keep: keep, Slots: slots, Starts: starts}
	got, err := c.Claims.Draw(c.T.Context(), c.ReplicaID, []admit.Wish{wish})
	if err != nil || len(got) != 1 {
		c.T.Fatalf("%+v, error %v", got, err)
	}
	return got[0]
}

// shared returns how many slots of the tenant all replicas together hold.
func shared(c Replica) int {
	return c.Count(`SELECT coalesce(sum(slots), 0)::int FROM punctual.allowances WHERE tenant = $1`, c.Tenant)
}

func TestSlotsAreSharedOutAmongReplicas(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_concurrent_runs", 7)
	a, b := AsReplica(c.Fixture), AsReplica(c.Fixture)
	if got := draws(a, 0, 100, 0); got.Slots != 7 || got.Concurrent != 7 {
		t.Fatalf("the first gets %+v", got)
	}
	if got := draws(b, 0, 4, 0); got.Slots != 0 {
		t.Fatalf("with none left the second gets %+v", got)
	}
	if got := draws(a, 7, 7, 0); got.Slots != 3 || got.Noted != 7 {
		t.Fatalf("where another has none, who has more than a share keeps %+v", got)
	}
	if got := draws(b, 0, 4, 0); got.Slots != 0 {
		t.Fatalf("while runs in flight take them the second gets %+v", got)
	}
	draws(a, 3, 3, 0) // four runs have ended
	if got := draws(b, 0, 4, 0); got.Slots != 4 {
		t.Fatalf("then the second gets %+v", got)
	}
	if got := draws(a, 3, 7, 0); got.Slots != 3 {
		t.Fatalf("who has a share gets %+v", got)
	}
	draws(b, 0, 0, 0) // the second has nothing more to do
	if got := draws(a, 3, 7, 0); got.Slots != 7 {
		t.Fatalf("alone again, the first gets %+v", got)
	}

	c.Limit("max_concurrent_runs", 2)
	if got := draws(a, 7, 7, 0); got.Slots != 2 || got.Noted != 7 {
		t.Errorf("lowered: %+v", got)
	}
	if got := draws(a, 1, 2, 0); got.Slots != 2 || shared(c) != 2 {
		t.Errorf("when its runs have ended: %+v, %d in all", got, shared(c))
	}
	c.Limit("max_concurrent_runs", nil)
	if got := draws(a, 1, 0, 0); got.Concurrent != 0 || shared(c) != 0 {
		t.Errorf("lifted: %+v, %d in all", got, shared(c))
	}
}

// When fewer slots than busy replicas exist, every replica gets a slot now and then.
func TestASlotIsHandedRound(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_concurrent_runs", 1)
	drawers, had, holder := []Replica{AsReplica(c.Fixture), AsReplica(c.Fixture), AsReplica(c.Fixture)}, [3]int{}, -1
	for range 100 {
		// A second passes. A holder gives its slot up after two seconds.
		c.Exec(`UPDATE punctual.allowances SET since = since - interval '1 s' WHERE slots > 0`)
		for _, i := range rand.Perm(3) {
			if i == holder && draws(drawers[i], 1, 5, 0).Slots == 0 {
				holder = -1 // the run ends, and the replica gives its slot up
			}
			if i != holder && draws(drawers[i], 0, 5, 0).Slots == 1 {
				if holder >= 0 {
					t.Fatalf("%d and %d have the one slot", holder, i)
				}
				holder = i
				had[i]++
			}
		}
	}
	if had[0] == 0 || had[1] == 0 || had[2] == 0 {
		t.Errorf("they had it %v times", had)
	}
}

// Replicas draw on a limit at the same time. It holds.
//
//prove:limits
func TestReplicasThatDrawAtTheSameTimeNeverExceedALimit(t *testing.T) {
	c := NewReplica(t)
	other := c.Neighbour(1)
	c.Limit("max_concurrent_runs", 10)
	other.Limit("max_concurrent_runs", 3)
	most := map[int32]int{c.Tenant: 10, other.Tenant: 3}
	var mu sync.Mutex
	holds := map[int32]int{} // how many slots of each tenant the replicas believe they hold
	var drawing sync.WaitGroup
	for range 4 {
		d := AsReplica(c.Fixture)
		drawing.Go(func() {
			mine := map[int32]int{}
			for range 60 {
				var wishes []admit.Wish
				for _, tenant := range []int32{c.Tenant, other.Tenant} {
					slots := rand.IntN(8)
					mu.Lock()
					given := max(0, mine[tenant]-slots)
					mine[tenant] -= given
					holds[tenant] -= given
					mu.Unlock()
					wishes = append(wishes, admit.Wish{Tenant: tenant, Keep: mine[tenant], Slots: slots})
				}
				got, err := d.Claims.Draw(t.Context(), d.ReplicaID, wishes)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, a := range got {
					holds[a.Tenant] += a.Noted - mine[a.Tenant]
					mine[a.Tenant] = a.Noted
					if a.Slots > a.Noted || holds[a.Tenant] > most[a.Tenant] {
						t.Errorf("%d of %d slots of tenant %d, the latest %+v", holds[a.Tenant], most[a.Tenant], a.Tenant, a)
					}
				}
				mu.Unlock()
			}
		})
	}
	drawing.Wait()
}

// A lost replica's share of a limit is free once its runs are taken over.
//
//prove:limits
func TestTheSlotsOfALostReplicaAreThereAgainOnceItsRunsAre(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_concurrent_runs", 4)
	lost, other := AsReplica(c.Fixture), AsReplica(c.Fixture)
	draws(lost, 0, 4, 0)
	c.Create("job", At(time.Now().Add(-time.Second)))
	lost.One(lost.Claim(10, false))
	c.Exec(`DELETE FROM punctual.replicas WHERE id = $1`, lost.ReplicaID)
	if got := draws(other, 0, 4, 0); got.Slots != 0 {
		t.Errorf("before its runs were taken over: %+v", got)
	}
	if n := c.Recover(); n != 1 {
		t.Fatalf("%d recovered", n)
	}
	if got := draws(other, 0, 4, 0); got.Slots != 4 {
		t.Errorf("afterwards: %+v", got)
	}
	c.Exec(`DELETE FROM punctual.replicas WHERE id = $1`, other.ReplicaID)
	if _, err := c.Chore(t.Context(), "maintenance"); err != nil || shared(c) != 0 {
		t.Errorf("where nobody draws any more: %d, error %v", shared(c), err)
	}
}

func TestStartsAreDrawnAtTheRate(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_runs_per_second", 50)
	a, b := AsReplica(c.Fixture), AsReplica(c.Fixture)
	began := time.Now()
	total := 0
	first := draws(a, 0, 0, 1000)
	total += first.Starts
	if first.Starts != 25 || first.Wait <= 0 || first.Wait > 20*time.Millisecond {
		t.Errorf("the burst is half a second's: %+v", first)
	}
	for time.Since(began) < 1500*time.Millisecond {
		total += draws(a, 0, 0, 3).Starts + draws(b, 0, 0, 100).Starts
	}
	most := int(25+50*time.Since(began).Seconds()) + 1
	if total > most || total <= 25 { // the total depends on how often the replicas asked
		t.Errorf("%d starts in %s, want more than the burst and at most %d", total, time.Since(began), most)
	}
	// A clock that was set back delays starts no longer than usual.
	c.Exec(`UPDATE punctual.tenant_usage SET starts_at = now() + interval '1 h'`)
	if got := draws(a, 0, 0, 1); got.Starts != 0 {
		t.Errorf("with none left: %+v", got)
	}
	c.WantCount(1, "what was used up in the future is waited for",
		`SELECT count(*) FROM punctual.tenant_usage WHERE starts_at <= clock_timestamp()`)
	c.Limit("max_runs_per_second", nil)
	if got := draws(a, 0, 0, 5); got.PerSecond != 0 || got.Starts != 0 {
		t.Errorf("lifted: %+v", got)
	}
}

// However long the backlog of a held-back tenant is, a claim finds the fresh work of other tenants by reading a few
// pages.
func TestOthersWorkIsNotSearchedForAmongThatOfTenantsHeldBack(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	c.Neighbour(1)
	c.Fill(150_000) // a tenth of the rows has been due for 2 s
	c.Exec(`ALTER TABLE punctual.ready DROP CONSTRAINT IF EXISTS ready_job_id_fkey`)
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), gen_random_uuid(), now() - interval '2 s', 1, $1::smallint * 4 + 1
		FROM generate_series(1, 50000)`, c.Queue)
	claim := scheduler.Claim{
		Quotas: []admit.Quota{{Queue: c.Queue, Slots: 100}}, Except: []int32{1}, Since: 300 * time.Millisecond,
	}
	for _, state := range []string{"never analysed", "analysed"} {
		for name, test := range map[string]struct {
			work     domain.Work
			relation string
		}{"slots": {domain.WorkDue, "schedules"}, "runs": {domain.WorkReady, "ready"}} {
			claim.Work = test.work
			p := c.ExplainClaim(claim)
			scans := p.Scans(test.relation)
			if pages := p.Hit + p.Read; pages > 500 || len(scans) == 0 ||
				slices.ContainsFunc(scans, func(node string) bool { return node != "Index Scan" }) {
				t.Errorf("%s, %s: %d pages, read by %v", state, name, pages, scans)
			}
		}
		c.Exec(`ANALYZE punctual.schedules, punctual.ready`)
	}
	queues := []int16{c.Queue}
	next, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{queues, queues, nil, queues}, true)
	if err != nil || !next.Schedule.After(next.Now) || !next.Ready.IsZero() {
		t.Errorf("%+v, error %v", next, err)
	}
}

// With a thousand tenants the statement is expensive enough for Postgres to compile it. That would take most of a
// second each time, with the tenants' rows locked.
func TestADrawIsNotCompiled(t *testing.T) {
	c := NewReplica(t)
	c.Limit("max_concurrent_runs", 7)
	c.Before("INSERT", "allowances", `IF current_setting('jit')::boolean THEN RAISE EXCEPTION 'with jit'; END IF;`)
	if got := draws(AsReplica(c.Fixture), 0, 100, 0); got.Slots != 7 {
		t.Errorf("drawn: %+v", got)
	}
}
