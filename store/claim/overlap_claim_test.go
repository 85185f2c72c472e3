package claim_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
	"punctual/store/jobs"
)

// Many runs are entered at once, as a transaction that has not asked may do.
func TestOneClaimDecidesAboutManyRunsOfAJob(t *testing.T) {
	t.Parallel()
	for policy, want := range map[jobspec.ConcurrencyPolicy][]string{
		jobspec.PolicyForbid:  {"running", "skipped overlap", "skipped overlap", "skipped overlap"},
		jobspec.PolicyWait:    {"running", "pending", "skipped overlap", "skipped overlap"},
		jobspec.PolicyReplace: {"cancelled replaced", "cancelled replaced", "cancelled replaced", "running"},
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("job", Never, Overlapping(policy))
			ids := enter(c.Fixture, job, 4)
			c.One(c.ClaimReady(10))
			got := make([]string, len(ids))
			for i, id := range ids {
				got[i] = c.Is(id)
			}
			if !slices.Equal(got, want) {
				t.Errorf("the runs are %q, want %q", got, want)
			}
		})
	}
}

// A claim that would have to wait for the row of a run that it replaces puts its own run off. Two claims could else
// wait for each other.
func TestAClaimWaitsForNoRowOfARunThatItReplaces(t *testing.T) {
	c := NewReplica(t)
	for job, table := range map[string]string{"a": `ready WHERE run_id = $1`, "b": `runs WHERE id = $1`} {
		first := c.Manual(job, Replacing)
		c.Finish(Failed(first))
		run := c.Trigger(job).ID
		free := c.Stranger(table, first.RunID)
		began := time.Now()
		if b, err := c.Claims.ClaimReady(Bounded(t), scheduler.Claim{
			Replica: c.ReplicaID, Work: domain.WorkReady, Quotas: []admit.Quota{{Queue: c.Queue, Slots: 10}},
		}); err != nil || len(b.Runs) != 0 || c.Is(run) != "pending" || c.Is(first.RunID) == "cancelled replaced" {
			t.Errorf("%s: %d runs started, %v, after %s", table, len(b.Runs), err, time.Since(began))
		}
		free()
		c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, run)
		c.ClaimReady(10)
		if a := c.One(c.ClaimReady(10)); a.RunID != run {
			t.Error("another run starts")
		}
	}
}

// enter enters runs of a job without asking whether they overlap.
func enter(c Fixture, job jobs.Record, n int) (ids []uuid.UUID) {
	c.T.Helper()
	for i := range n {
		ids = append(ids, Value[uuid.UUID](c, `
			WITH made AS (
			    INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
			    SELECT $2, j.id, now(), now(), j.tenant, j.version, s.lane, 'pending', 'manual'
			    FROM punctual.jobs j JOIN punctual.schedules s ON s.job_id = j.id WHERE j.id = $1
			    RETURNING id, job_id, due_at, tenant, lane)
			INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane) SELECT * FROM made RETURNING run_id`,
			job.ID, domain.NewRunID(time.Now().Add(time.Duration(i)*time.Millisecond))))
	}
	return ids
}

// Triggers, slots, edits, cancels, claims and finishes of a few jobs go on side by side. Runs of a job that must not
// overlap never do, every run ends, and no transaction deadlocks. RUNS=2500 makes 10,000 rounds of claims and finishes
// race with 7,500 triggers and 2,500 edits under each policy.
func TestWhateverComesTogetherNoTwoRunsOverlap(t *testing.T) {
	t.Parallel()
	times := 30
	if testing.Short() {
		times = 3
	}
	if n, err := strconv.Atoi(os.Getenv("RUNS")); err == nil {
		times = n
	}
	for _, policy := range []jobspec.ConcurrencyPolicy{
		jobspec.PolicyAllow, jobspec.PolicyForbid, jobspec.PolicyWait, jobspec.PolicyReplace,
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := NewReplica(t)
			names := []string{"a", "b", "c"}
			r := raced{Replica: c, inFlight: map[uuid.UUID]*atomic.Int32{}, exclusive: policy != jobspec.PolicyAllow}
			for _, name := range names {
				r.inFlight[c.Create(name, Every(time.Second), Overlapping(policy)).ID] = new(atomic.Int32)
			}
			var racers sync.WaitGroup
			for i, work := range []func(n int){
				r.trigger, r.trigger, r.trigger, r.enterPlain, r.edit, r.cancelOne, r.work, r.work, r.work, r.work,
			} {
				racers.Go(func() {
					for n := range times {
						work(i + n)
					}
				})
			}
			racers.Wait()
			for _, name := range names {
				c.Pause(name)
			}
			deadline := time.Now().Add(time.Minute + time.Duration(times)*100*time.Millisecond)
			for c.Count(`SELECT count(*) FROM punctual.runs WHERE finished_at IS NULL`) > 0 {
				if r.work(0); time.Now().After(deadline) {
					t.Fatalf("runs have not ended: %q", unended(c.Fixture))
				}
				c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE due_at > now() AND waits <> 'gate'`) // put off for a second
			}
			c.WantCount(0, "rows of runs that have ended are left", `SELECT
				(SELECT count(*) FROM punctual.ready) + (SELECT count(*) FROM punctual.claims)
				+ (SELECT count(active_run) + count(waiting_run) FROM punctual.exclusive)`)
			c.WantCount(0, "runs ended without a reason",
				`SELECT count(*) FROM punctual.runs WHERE status <> 'succeeded' AND reason IS NULL`)
			c.WantCount(0, "deadlocks", `SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()`)
		})
	}
}

// raced counts the runs in flight of each job.
type raced struct {
	Replica
	inFlight  map[uuid.UUID]*atomic.Int32
	exclusive bool
}

func (r raced) name(n int) string { return string(rune('a' + n%3)) }

func (r raced) trigger(n int) {
	_, err := r.TryTrigger(r.name(n))
	if active := (*jobs.ActiveRunError)(nil); err != nil && !errors.As(err, &active) {
		r.T.Errorf("a trigger: %v", err)
	}
}

func (r raced) enterPlain(n int) {
	job, err := r.Jobs.GetJob(r.T.Context(), r.Tenant, r.name(n))
	if err != nil {
		r.T.Errorf("reading a job: %v", err)
		return
	}
	enter(r.Fixture, job, 1)
}

func (r raced) edit(n int) {
	if _, err := r.TryEdit(r.name(n), Every(time.Duration(1+n%2)*time.Second)); err != nil {
		r.T.Errorf("an edit: %v", err)
	}
}

func (r raced) cancelOne(int) {
	var run uuid.UUID
	if err := r.DB.Callers.QueryRow(r.T.Context(), `SELECT coalesce((SELECT id FROM punctual.runs
		WHERE finished_at IS NULL ORDER BY random() LIMIT 1), '00000000-0000-0000-0000-000000000000')`).Scan(&run); err != nil {
		r.T.Errorf("looking for a run: %v", err)
		return
	}
	if run != uuid.Nil {
		if _, err := r.Runs.CancelRun(r.T.Context(), r.Tenant, run); err != nil && !errors.Is(err, store.ErrState) {
			r.T.Errorf("a cancel: %v", err)
		}
	}
}

// work claims slots and runs, and finishes them.
func (r raced) work(int) {
	ctx, claim := r.T.Context(), scheduler.Claim{Replica: r.ReplicaID, Quotas: []admit.Quota{{Queue: r.Queue, Slots: 5}}}
	slots, err := r.Claims.ClaimDue(ctx, claim)
	if err != nil {
		r.T.Errorf("a claim of slots: %v", err)
	}
	claim.Work = domain.WorkReady
	runs, err := r.Claims.ClaimReady(ctx, claim)
	if err != nil {
		r.T.Errorf("a claim of runs: %v", err)
	}
	batch := append(slots.Runs, runs.Runs...)
	for _, a := range batch {
		if n := r.inFlight[a.Job.ID].Add(1); n > 1 && r.exclusive {
			r.T.Errorf("%d runs of job %s are in flight", n, a.Job.Name)
		}
	}
	for _, a := range batch {
		r.inFlight[a.Job.ID].Add(-1)
		o := Succeeded(a)
		if rand.IntN(3) == 0 {
			o = Failed(a)
			o.RetryIn = 0
		}
		r.finish([]domain.Outcome{o}, nil)
	}
	if leases := leasesOf(batch); len(leases) > 0 {
		r.finish(nil, leases)
	}
}

// finish writes outcomes and ends leases. What others have locked is left out, and tried again as a replica does.
func (r raced) finish(outcomes []domain.Outcome, leases []uuid.UUID) {
	ctx := Bounded(r.T)
	for {
		_, err := r.Claims.Finish(ctx, outcomes, leases)
		left, is := errors.AsType[*scheduler.LeftOutcomesError](err)
		if is && len(left.Failing) == 0 && ctx.Err() == nil {
			continue
		}
		if err != nil {
			r.T.Errorf("a finish: %v", err)
		}
		return
	}
}

func leasesOf(batch []domain.Assignment) (leases []uuid.UUID) {
	for _, a := range batch {
		if !slices.Contains(leases, a.Lease.ID) {
			leases = append(leases, a.Lease.ID)
		}
	}
	return leases
}

// unended describes runs that have not ended.
func unended(c Fixture) []string {
	return Value[[]string](c, `SELECT array_agg(concat_ws(' ', j.name, r.status, r.reason, r.trigger, r.id, y.due_at - now(),
			y.waits = 'gate', 'gate', x.active_run, x.waiting_run))
		FROM punctual.runs r JOIN punctual.jobs j ON j.id = r.job_id LEFT JOIN punctual.ready y ON y.run_id = r.id
		LEFT JOIN punctual.exclusive x ON x.job_id = r.job_id
		WHERE r.finished_at IS NULL`)
}
