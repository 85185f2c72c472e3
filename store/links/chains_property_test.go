package links_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
)

// chainGraph makes jobs with random policies, whose links lead from each only to later ones.
func chainGraph(c Replica, random *rand.Rand, n int) {
	c.T.Helper()
	policies := []jobspec.ConcurrencyPolicy{
		jobspec.PolicyAllow, jobspec.PolicyForbid, jobspec.PolicyWait, jobspec.PolicyReplace,
	}
	ends := []string{"succeeded", "failed", "ended"}
	all := make([]jobspec.Definition, n)
	for i := range all {
		var links []string
		for j := i + 1; j < n; j++ {
			if random.IntN(n) < 3 && len(links) < 3 {
				links = append(links, fmt.Sprintf("j%d %s", j, ends[random.IntN(len(ends))]))
			}
		}
		all[i] = Definition(fmt.Sprintf("j%d", i), Overlapping(policies[random.IntN(len(policies))]), Then(links...))
		all[i].Retry.MaxAttempts = 1
	}
	_, err := c.CreateMany(jobs.ConflictError, all...)
	Must(c.T, err)
}

// finishRacing ends claimed runs in one batch, with random ends, as two writers do that do not know of each other. An
// outcome that has to wait for a lock is written again.
func finishRacing(c Replica, random *rand.Rand, runs []domain.Assignment) error {
	outcomes, leases := make([]domain.Outcome, len(runs)), []uuid.UUID{}
	for i, a := range runs {
		outcomes[i] = Ended(a, []domain.Verdict{domain.Succeed, domain.Bury, domain.Succeed, domain.Cancel}[random.IntN(4)])
		leases = append(leases, a.Lease.ID)
	}
	slices.SortFunc(leases, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	write := func() error {
		left, released := outcomes, slices.Compact(slices.Clone(leases))
		for {
			_, err := c.Claims.Finish(c.T.Context(), slices.Clone(left), released)
			locked, is := errors.AsType[*scheduler.LeftOutcomesError](err)
			if !is {
				return err
			}
			left = slices.DeleteFunc(slices.Clone(left), func(o domain.Outcome) bool { return locked.Runs[o.RunID] == "" })
			released = locked.Leases
		}
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- write() }()
	}
	return errors.Join(<-errs, <-errs)
}

// wantEdgesFired compares what the ended runs should have triggered, by this test's own reading of the definitions,
// with what is there.
func wantEdgesFired(c Replica) (edges int) {
	c.T.Helper()
	type ended struct {
		run    uuid.UUID
		job    string
		status domain.Status
	}
	var all []ended
	got := map[string]int{}
	rows, err := c.Pool().Query(c.T.Context(), `
		SELECT r.id, j.name, r.status, coalesce(r.caused_by, '00000000-0000-0000-0000-000000000000')
		FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id`)
	Must(c.T, err)
	for rows.Next() {
		var e ended
		var by uuid.UUID
		Must(c.T, rows.Scan(&e.run, &e.job, &e.status, &by))
		all = append(all, e)
		if by != uuid.Nil {
			got[by.String()+" "+e.job]++
		}
	}
	Must(c.T, rows.Err())
	links := map[string][]jobspec.Link{}
	for _, e := range all {
		if _, known := links[e.job]; !known {
			links[e.job] = c.Get(e.job).Definition.Then
		}
		for _, l := range links[e.job] {
			fires := e.status == domain.StatusSucceeded && l.When != jobspec.WhenFailed ||
				e.status == domain.StatusDead && l.When != jobspec.WhenSucceeded ||
				e.status == domain.StatusCancelled && l.When == jobspec.WhenEnded
			edge := e.run.String() + " " + l.Job
			if n := got[edge]; n > 1 || fires != (n == 1) {
				c.T.Errorf("%s of %s, which is %s, has triggered %s %d times (when %s)", e.run, e.job, e.status, l.Job, n, l.When)
			}
			edges += got[edge]
			delete(got, edge)
		}
	}
	if len(got) > 0 {
		c.T.Errorf("runs of no link: %v", got)
	}
	return edges
}

// Replicas end runs in batches, over random graphs of chained jobs with gates, while callers trigger and cancel: there
// is no deadlock, and each link fires once for each end.
func TestRacingFinishesFireEachLinkOnce(t *testing.T) {
	c := NewReplica(t)
	most := int64(120)
	if !testing.Short() {
		most = 2000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chainGraph(c, rand.New(rand.NewPCG(seed, 0)), 12)
	var finished atomic.Int64
	var working sync.WaitGroup
	for i := range 4 {
		random, replica := rand.New(rand.NewPCG(seed, uint64(i+1))), AsReplica(c.Fixture)
		working.Go(func() {
			for idle := 0; idle < 3; {
				if finished.Load() < most {
					run, err := c.TryTrigger(fmt.Sprintf("j%d", random.IntN(6)))
					refused := new(*jobs.ActiveRunError)
					if err != nil && !errors.As(err, refused) {
						t.Error(err)
						return
					}
					if err == nil && random.IntN(8) == 0 {
						if _, err := c.Runs.CancelRun(t.Context(), c.Tenant, run.ID); err != nil && !errors.Is(err, store.ErrState) {
							t.Error(err)
							return
						}
					}
					idle = 0
				}
				b := replica.ClaimReady(1 + random.IntN(12))
				if len(b.Runs) == 0 {
					idle++
					c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE waits = 'turn' AND due_at > now()
						AND run_id IN (SELECT run_id FROM punctual.ready FOR UPDATE SKIP LOCKED)`)
					continue
				}
				idle = 0
				if err := finishRacing(replica, random, b.Runs); err != nil {
					t.Error(err)
					return
				}
				finished.Add(int64(len(b.Runs)))
			}
		})
	}
	working.Wait()
	c.WantCount(0, "deadlocks", `SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()`)
	if edges := wantEdgesFired(c); int64(edges) < most/4 {
		t.Errorf("only %d links fired in %d ends: this test sees little", edges, finished.Load())
	} else {
		t.Logf("%d ends fired %d links", finished.Load(), edges)
	}
}
