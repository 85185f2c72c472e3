package claim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/jobs"
)

// A one-shot that fires must write neither its row in jobs nor the indexes of jobs: that took half of Postgres's time
// in a burst.
func TestTheClaimOfTheLastSlotCompletesTheJobAndLeavesItsRowAlone(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", At(time.Now().Add(time.Hour)))
	c.SlotAgo(job.ID, 0)
	const row = `SELECT xmin::text::int FROM punctual.jobs WHERE id = $1`
	before := c.Count(row, job.ID)
	c.One(c.Claim(100, false))
	if c.Count(row, job.ID) != before {
		t.Error("the row of the job was written")
	}
	got := c.Get("job")
	if got.State != domain.JobCompleted || got.CompletedAt == nil || got.NextRunAt != nil {
		t.Errorf("the job is %s since %v, next at %v", got.State, got.CompletedAt, got.NextRunAt)
	}
	if names := c.JobNames(jobs.Filter{State: domain.JobCompleted}); !slices.Equal(names, []string{"job"}) {
		t.Errorf("completed are %q", names)
	}
	if names := c.JobNames(jobs.Filter{State: domain.JobActive}); len(names) != 0 {
		t.Errorf("active are %q", names)
	}
	again := c.Create("job", Delay(time.Hour)) // a completed job does not keep its name
	if c.Get("job").ID != again.ID || c.Get(job.ID.String()).State != domain.JobCompleted {
		t.Error("the name means another than the active job")
	}
}

func TestClaimDueMakesARunOfASlot(t *testing.T) {
	c := NewReplica(t)
	job, slot := c.DueNow("job")
	batch := c.Claim(100, false)
	a := c.One(batch)
	want := domain.Assignment{
		RunID: domain.SlotRunID(job.ID, slot), Lane: c.Queue*4 + 1, Trigger: domain.TriggerSchedule,
		ScheduledFor: slot, DueAt: slot, Attempt: 1, Fence: a.Fence, Job: a.Job, Lease: a.Lease,
	}
	if diff := cmp.Diff(want, a, cmp.Comparer(func(a, b *domain.Job) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if a.Job.ID != job.ID || a.Job.Name != "job" || a.Fence == 0 || len(batch.Full) != 0 || batch.Settled != 1 ||
		a.Lease.Remaining != 1 || a.Lease.ClaimedAt.Before(slot) {
		t.Errorf("%+v, lease %+v", batch, a.Lease)
	}
	run := c.Run(a.RunID)
	if run.Status != domain.StatusRunning || run.Attempt != 1 || run.JobVersion != 1 || run.Replica == nil ||
		*run.Replica != c.ReplicaID {
		t.Errorf("run %+v", run)
	}
	if next, due := c.Next(job.ID); !next.Equal(slot.Add(time.Hour)) || !due.Equal(next) {
		t.Errorf("the next slot is %s, due %s", next, due)
	}
	c.WantCount(1, "no claim holds the run",
		`SELECT count(*) FROM punctual.claims WHERE id = $1 AND replica = $2 AND run_ids = ARRAY[$3::uuid]`, a.Lease.ID, c.ReplicaID, a.RunID)
}

func TestClaimDueTakesWhatIsDueOnly(t *testing.T) {
	c := NewReplica(t)
	c.Many(1, "soon", -time.Minute)
	c.Many(1, "older", time.Minute)
	c.Many(1, "other", 0)
	c.Exec(`UPDATE punctual.schedules SET lane = lane + 4
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'other-1')`)
	c.Many(1, "off", 0)
	c.Exec(`UPDATE punctual.schedules SET enabled = false
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'off-1')`)
	plain := c.Asks(100, false)
	plain.Except = nil
	for _, asked := range []scheduler.Claim{plain, c.Asks(100, false)} {
		if b, err := c.Claims.ClaimDue(t.Context(), asked); err != nil || len(b.Runs) != 0 || b.Settled != 0 {
			t.Errorf("claimed %+v, %v", b, err)
		}
	}
	if b := c.Claim(100, true); b.Settled != 1 {
		t.Errorf("of the backlog %d were settled, want 1", b.Settled)
	}
	c.WantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
}

// Eight claimers compete for the same rows. No slot is claimed twice.
//
//prove:claims
func TestEightClaimersNeverShareASlot(t *testing.T) {
	c := NewReplica(t)
	const jobs = 3000
	c.Many(jobs, "job", time.Minute-2*time.Second, Rarely, Tolerant)
	var mu sync.Mutex
	seen := map[uuid.UUID]int{}
	fences := map[int64]bool{}
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			for settled := 1; settled > 0; {
				b, err := c.Claims.ClaimDue(t.Context(), c.Asks(100, true))
				if err != nil {
					t.Error(err)
					return
				}
				settled = b.Settled
				mu.Lock()
				for _, a := range b.Runs {
					seen[a.RunID]++
					fences[a.Fence] = true
				}
				mu.Unlock()
			}
		})
	}
	racers.Wait()
	// A claim that finds all rows locked stops early. This loop claims what is left.
	for b := c.Claim(100, true); b.Settled > 0; b = c.Claim(100, true) {
		for _, a := range b.Runs {
			seen[a.RunID]++
			fences[a.Fence] = true
		}
	}
	for id, n := range seen {
		if n > 1 {
			t.Errorf("run %s was given out %d times", id, n)
		}
	}
	if len(seen) != jobs || len(fences) != jobs {
		t.Errorf("%d runs and %d fences of %d slots", len(seen), len(fences), jobs)
	}
	if n := c.Count(`SELECT count(DISTINCT (job_id, scheduled_for))
		FROM punctual.runs
		WHERE status = 'running'`); n != jobs {
		t.Errorf("%d slots have a run, want %d", n, jobs)
	}
	c.WantCount(jobs, "runs that claims hold", `SELECT sum(cardinality(run_ids)) FROM punctual.claims`)
}

// A slot comes again after a failover that lost the schedule's advance but not the run, and after a backfill of the
// slot.
func TestASlotThatHasItsRunIsNotSentAgain(t *testing.T) {
	c := NewReplica(t)
	job, slot := c.DueNow("job")
	first := c.One(c.Claim(100, false))
	c.SetNext(job.ID, slot)
	again := c.Claim(100, false)
	if len(again.Runs) != 0 || again.Settled != 1 {
		t.Errorf("%d runs of a slot that has one; %d settled", len(again.Runs), again.Settled)
	}
	if next, _ := c.Next(job.ID); !next.Equal(slot.Add(time.Hour)) {
		t.Errorf("the schedule stays at %s", next)
	}
	c.WantCount(1, "the first run has changed",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND fence = $2 AND status = 'running'`, first.RunID, first.Fence)
	c.WantCount(1, "claims, of which there is the first one's", `SELECT count(*) FROM punctual.claims`)
}

// A run that is there already keeps no other run of its claim from being sent once. Tokens of runs that must not
// overlap are given under the locks of their gates: after those of the slots, which are given under the locks of the
// schedules.
func TestAClaimWithARunThatIsThereAlreadyTakesTheOthers(t *testing.T) {
	c := NewReplica(t)
	there, slot := c.DueNow("there")
	c.One(c.Claim(100, false))
	c.SetNext(there.ID, slot)
	for _, again := range []bool{true, false} {
		for i := range 3 {
			c.DueNow(fmt.Sprintf("free-%d-%v", i, again))
			c.DueNow(fmt.Sprintf("gated-%d-%v", i, again), Forbid)
		}
		b := c.Claim(100, false)
		if again && b.Settled != 7 || !again && b.Settled != 6 || len(b.Runs) != 6 {
			t.Fatalf("%d settled, %d runs", b.Settled, len(b.Runs))
		}
		leases := map[uuid.UUID]int{}
		var free, gated int64
		for _, r := range b.Runs {
			leases[r.Lease.ID]++
			if n := c.Count(`SELECT count(*)
				FROM punctual.runs r JOIN punctual.claims l ON l.id = $3 AND r.id = ANY(l.run_ids)
				WHERE r.id = $1 AND r.fence = $2 AND r.status = 'running'`, r.RunID, r.Fence, r.Lease.ID); n != 1 {
				t.Errorf("run %s is not written as it is sent", r.RunID)
			}
			if r.Gated && (gated == 0 || r.Fence < gated) {
				gated = r.Fence
			} else if !r.Gated {
				free = max(free, r.Fence)
			}
		}
		c.WantCount(0, "two runs have the same token", `SELECT count(DISTINCT fence) - count(*) FROM punctual.runs`)
		if !again && gated <= free {
			t.Errorf("tokens up to %d for free runs and from %d for gated ones", free, gated)
		}
		if len(leases) != 1 || c.Count(`SELECT count(*) FROM punctual.claims WHERE cardinality(run_ids) = 6`) == 0 {
			t.Errorf("a replica keeps one lease for each claim; these are %v", leases)
		}
	}
}

func TestPrioritiesThenDueTimesDecideWhoComesFirst(t *testing.T) {
	c := NewReplica(t)
	// The job with the earlier slot is created first: a second that passes in between makes its slot earlier still.
	c.Many(1, "low", 2*time.Second, Rarely, prioritised(jobspec.PriorityLow), Tolerant)
	c.Many(1, "normal-early", time.Second, Rarely, Tolerant)
	c.Many(1, "normal-late", 0, Rarely, Tolerant)
	c.Many(1, "high", 0, Rarely, prioritised(jobspec.PriorityHigh), Tolerant)
	for _, want := range []string{"high-1", "normal-early-1", "normal-late-1", "low-1"} {
		a := c.One(c.Claim(1, false))
		if name := c.Text(`SELECT name FROM punctual.jobs WHERE id = $1`, a.Job.ID); name != want {
			t.Errorf("%s is claimed where %s comes first", name, want)
		}
	}
}

func TestClaimsNeverTakeMoreThanTheirQuota(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		quota int
		jobs  map[jobspec.Priority]int
		want  int
		full  bool
	}{
		{"of one priority", 3, map[jobspec.Priority]int{jobspec.PriorityNormal: 10}, 3, true},
		{
			"of all priorities", 12,
			map[jobspec.Priority]int{jobspec.PriorityHigh: 5, jobspec.PriorityNormal: 5, jobspec.PriorityLow: 5},
			12, true,
		},
		{
			"of the highest", 2,
			map[jobspec.Priority]int{jobspec.PriorityHigh: 5, jobspec.PriorityNormal: 5, jobspec.PriorityLow: 5},
			2, true,
		},
		{"of what there is", 20, map[jobspec.Priority]int{jobspec.PriorityHigh: 5, jobspec.PriorityLow: 5}, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(t)
			for p, n := range c.jobs {
				r.Many(n, string(p), 0, Rarely, prioritised(p), Tolerant)
			}
			b := r.Claim(c.quota, false)
			if len(b.Runs) != c.want || len(b.Full) != 0 != c.full || b.Settled != c.want {
				t.Errorf("%d runs, %d settled, full: %v", len(b.Runs), b.Settled, b.Full)
			}
		})
	}
}

// Catching up is paced: runs of a backlog need worker slots like other runs.
func TestCatchingUpKeepsToTheQuotaToo(t *testing.T) {
	c := NewReplica(t)
	c.Many(3, "job", 30*time.Second, Every(time.Second), AllMissed, Tolerating(time.Second))
	b := c.Claim(4, true)
	if len(b.Runs) != 4 || b.Settled != 3 {
		t.Errorf("%d runs of %d jobs with 4 slots, want 4 of 3", len(b.Runs), b.Settled)
	}
	if b := c.Claim(100, true); len(b.Runs) != 30 {
		t.Errorf("%d runs of 3 jobs with 100 slots, want 10 of each", len(b.Runs))
	}
}

func TestALockedRowIsPassedOver(t *testing.T) {
	c := NewReplica(t)
	locked, _ := c.DueNow("locked")
	free, _ := c.DueNow("free")
	unlock := c.Stranger(`schedules WHERE job_id = $1`, locked.ID)
	if a := c.One(c.Claim(1, false)); a.Job.ID != free.ID {
		t.Error("not the one that is free")
	}
	unlock()
	if a := c.One(c.Claim(1, false)); a.Job.ID != locked.ID {
		t.Error("not the one that was locked")
	}
}

// A claim writes the rows that it has locked by their addresses. A row may be written, and so move, after the claim's
// statement has begun and before it locks the row. The claim must then get the address of the new row.
func TestAClaimHasTheAddressOfTheRowThatItLocked(t *testing.T) {
	c := NewReplica(t)
	job, _ := c.DueNow("moves")
	const move = `UPDATE punctual.schedules SET version = 7 WHERE job_id = $1 RETURNING ctid`
	free := c.Locks(`SELECT pg_advisory_xact_lock(1)`)
	sql, arguments := claim.Locking(c.Asks(10, false))
	type locked struct {
		version int
		at      pgtype.TID
		err     error
	}
	claimed, conn := make(chan locked, 1), c.Connect()
	go func() {
		var l locked
		l.err = conn.QueryRow(Bounded(t), `
			SELECT c.version, c.at
			FROM (SELECT pg_advisory_xact_lock(1)) w CROSS JOIN LATERAL (`+sql+`) c`, arguments[1:]...).Scan(&l.version, &l.at)
		claimed <- l
	}()
	c.Waiting(1)
	var moved pgtype.TID
	Must(t, c.DB.Callers.QueryRow(t.Context(), move, job.ID).Scan(&moved))
	free()
	if l := <-claimed; l.err != nil || l.version != 7 || l.at != moved {
		t.Errorf("version %d at %v, error %v; want 7 at %v", l.version, l.at, l.err, moved)
	}
}

// A transaction that writes a row which refers to the job, such as a version or a gate, does not keep the job from
// being claimed.
func TestForeignKeyChecksDoNotHideADueJob(t *testing.T) {
	c := NewReplica(t)
	job, _ := c.DueNow("job")
	c.Locks(`SELECT FROM punctual.jobs WHERE id = $1 FOR KEY SHARE`, job.ID)
	c.One(c.Claim(1, false))
}

func TestClaimsAdvanceOneShotsAndSkips(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		options []Option
		ago     time.Duration
		want    []string
		state   domain.JobState
	}{
		{
			"a one-shot completes its job",
			[]Option{Delay(time.Hour)},
			0,
			[]string{"schedule running"},
			domain.JobCompleted,
		},
		{
			"a late one-shot too",
			[]Option{Delay(time.Hour)},
			3 * time.Hour,
			[]string{"catchup running late"},
			domain.JobCompleted,
		},
		{
			"a one-shot that is skipped too",
			[]Option{Delay(time.Hour), Missed(jobspec.MissedSkip)},
			3 * time.Hour,
			[]string{"schedule skipped missed x1"},
			domain.JobCompleted,
		},
		{
			"missed slots become one skip",
			[]Option{HalfPast, Missed(jobspec.MissedSkip)},
			3 * time.Hour,
			[]string{"schedule skipped missed x4"},
			domain.JobActive,
		},
		{
			"and the newest runs late",
			[]Option{HalfPast},
			3 * time.Hour,
			[]string{"catchup running late", "schedule skipped missed x3"},
			domain.JobActive,
		},
		{
			"or all of them",
			[]Option{HalfPast, AllMissed},
			2 * time.Hour,
			[]string{"catchup running late", "catchup running late", "catchup running late"},
			domain.JobActive,
		},
		{
			"an expired slot is recorded",
			[]Option{HalfPast, Expiring(time.Millisecond)},
			time.Hour,
			[]string{"schedule skipped expired x1", "schedule skipped missed x1"},
			domain.JobActive,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(t)
			job := r.Create("job", append(slices.Clone(c.options), func(d *jobspec.Definition) {
				if c.ago > 0 {
					d.Missed.Tolerance = jobspec.DurationOf(time.Second)
				}
			})...)
			r.SlotAgo(job.ID, c.ago)
			runs := len(r.Claim(100, c.ago > 0).Runs)
			r.WantHistory(job.ID, c.want...)
			if running := strings.Count(strings.Join(c.want, " "), "running"); runs != running {
				t.Errorf("%d runs to send, want %d", runs, running)
			}
			if state := r.Get(job.ID.String()).State; state != c.state {
				t.Errorf("the job is %s, want %s", state, c.state)
			}
			if c.state == domain.JobCompleted && r.Count(`SELECT count(*)
				FROM punctual.schedules
				WHERE job_id = $1 AND (enabled OR scheduled_for IS NOT NULL
					OR next_run_at IS NOT NULL)`, job.ID) != 0 {
				t.Error("its schedule has not ended")
			}
		})
	}
}

func TestABrokenDefinitionIsPutOffAndBlocksNobody(t *testing.T) {
	c := NewReplica(t)
	broken, slot := c.DueNow("broken")
	c.Exec(`UPDATE punctual.job_versions
		SET definition = '{"name":"broken","schedule":{"cron":"99 * * * *"},"target":{"url":"https://example.com"}}'
		WHERE job_id = $1`, broken.ID)
	garbled, _ := c.DueNow("garbled")
	c.Exec(`UPDATE punctual.job_versions SET definition = '[]' WHERE job_id = $1`, garbled.ID)
	gone, _ := c.DueNow("gone")
	c.Exec(`DELETE FROM punctual.job_versions WHERE job_id = $1`, gone.ID)
	good, _ := c.DueNow("good")
	if a := c.One(c.Claim(100, false)); a.Job.ID != good.ID {
		t.Error("not the good one")
	}
	for _, job := range []uuid.UUID{broken.ID, garbled.ID, gone.ID} {
		next, due := c.Next(job)
		if wait := due.Sub(slot); wait < 55*time.Second || wait > 70*time.Second || next.Before(slot) ||
			next.After(slot.Add(2*time.Second)) {
			t.Errorf("slot %s became %s, due %s", slot, next, due)
		}
	}
	if b := c.Claim(100, false); b.Settled > 1 { // the slot of the good job may be due again
		t.Errorf("%d settled at once again", b.Settled)
	}
}

// A partition is missing for a one-shot that was paused for weeks, and in a database whose maintenance failed for days.
func TestAClaimMakesThePartitionItNeeds(t *testing.T) {
	t.Parallel()
	for name, ago := range map[string]time.Duration{"of today": 0, "of weeks ago": 40 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("job", Delay(time.Hour), Tolerant)
			c.SlotAgo(job.ID, ago)
			if ago == 0 {
				c.DropDays(0, 0)
			}
			a := c.One(c.Claim(100, ago > 0))
			c.WantCount(1, "the run is not there", `SELECT count(*) FROM punctual.runs WHERE id = $1`, a.RunID)
		})
	}
}

// With fire_all after weeks, one claim makes ten runs on ten days. Most of these days are neither today nor the day of
// the schedule's slot.
func TestAClaimMakesThePartitionsOfAllItsRuns(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Every(24*time.Hour), AllMissed, Window(30*24*time.Hour))
	slot := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -25)
	c.SetNext(job.ID, slot)
	if b := c.Claim(100, true); len(b.Runs) != 10 {
		t.Errorf("%d runs, want 10", len(b.Runs))
	}
}

func TestFreshGatesCountAsFree(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"when the active run is over":    `UPDATE punctual.runs SET status = 'dead', finished_at = now() WHERE job_id = $1`,
		"when the active run is missing": `UPDATE punctual.exclusive SET active_run = gen_random_uuid() WHERE job_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			job, slot := c.DueNow("job", Forbid)
			c.One(c.Claim(100, false))
			c.Exec(sql, job.ID)
			c.SetNext(job.ID, slot.Add(-time.Second))
			c.One(c.Claim(100, false))
		})
	}
}

func TestABusyGateLeavesTheSlotDue(t *testing.T) {
	c := NewReplica(t)
	job, slot := c.DueNow("job", Forbid)
	c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
	if b := c.Claim(100, false); len(b.Runs) != 0 || b.Settled != 0 {
		t.Errorf("%d runs, %d settled while the gate is busy", len(b.Runs), b.Settled)
	}
	if next, _ := c.Next(job.ID); !next.Equal(slot) {
		t.Errorf("the slot %s has moved to %s", slot, next)
	}
}

func TestClaimReadyStartsWhatWaits(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never)
	triggered, err := c.For(c.Tenant).TriggerJob(t.Context(), "job",
		jobs.TriggerRequest{Body: []byte(`{"a":1}`), Headers: map[string]string{"X-A": "b"}})
	Must(t, err)
	batch := c.ClaimReady(10)
	a := c.One(batch)
	if a.RunID != triggered.ID || a.Job.ID != job.ID || a.Attempt != 1 || a.Trigger != domain.TriggerManual ||
		a.Fence == 0 || a.Lease.Remaining != 1 || batch.Settled != 1 || len(batch.Full) != 0 {
		t.Errorf("%+v", a)
	}
	if string(a.Body) != `{"a":1}` || a.Headers["X-A"] != "b" {
		t.Errorf("body %s, headers %v", a.Body, a.Headers)
	}
	if c.Ready(job.ID) != 0 {
		t.Error("it still waits")
	}
	c.WantCount(1, "no claim holds it",
		`SELECT count(*) FROM punctual.claims WHERE id = $1 AND run_ids = ARRAY[$2::uuid]`, a.Lease.ID, a.RunID)
	if b := c.ClaimReady(10); len(b.Runs) != 0 {
		t.Error("it is claimed twice")
	}
}

func TestClaimReadyTakesByPriorityAndWithinItsQuota(t *testing.T) {
	c := NewReplica(t)
	for _, p := range []jobspec.Priority{jobspec.PriorityLow, jobspec.PriorityNormal, jobspec.PriorityHigh} {
		for i := range 3 {
			name := fmt.Sprintf("%s-%d", p, i)
			c.Create(name, Never, prioritised(p))
			c.Trigger(name)
		}
	}
	first := c.ClaimReady(5)
	got := map[jobspec.Priority]int{}
	for _, a := range first.Runs {
		got[a.Job.Priority]++
	}
	if diff := cmp.Diff(
		map[jobspec.Priority]int{jobspec.PriorityHigh: 3, jobspec.PriorityNormal: 2}, got,
	); diff != "" || len(first.Full) == 0 {
		t.Errorf("full: %v, -want +got:\n%s", first.Full, diff)
	}
	if rest := c.ClaimReady(5); len(rest.Runs) != 4 {
		t.Errorf("%d left, want 4", len(rest.Runs))
	}
}

// A claim that finds a gate locked puts the run off and looks at the gate again a moment later.
func TestClaimReadyPutsOffWhatStandsAtALockedGate(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never, Forbid)
	run := c.Trigger("job")
	c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
	if b := c.ClaimReady(10); len(b.Runs) != 0 || b.Settled != 0 {
		t.Errorf("%d runs, %d settled while the gate is locked", len(b.Runs), b.Settled)
	}
	c.WantCount(1, "it is not put off by a second", `SELECT count(*)
		FROM punctual.ready
		WHERE run_id = $1 AND waits = 'turn' AND due_at > now() - interval '1 min'
			AND due_at <= now() + interval '1 s'`, run.ID)
}

// Claims and finishes hold a gate for milliseconds, and so long it is left alone. Only one that somebody holds for long
// is left alone for longer and longer. (It was a second at once: a successor that met the claim of a slot stood idle.)
func TestAGateThatIsLockedIsSoonLookedAtAgain(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never, Forbid)
	run := c.Trigger("job")
	free := c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
	putOff := func() (least, most time.Duration) {
		c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, run.ID)
		before := c.Clock()
		c.ClaimReady(10)
		due := Value[time.Time](c.Fixture, `SELECT due_at FROM punctual.ready WHERE run_id = $1`, run.ID)
		return due.Sub(c.Clock()), due.Sub(before)
	}
	if least, _ := putOff(); least > 50*time.Millisecond {
		t.Errorf("it is put off by %s", least)
	}
	for range 8 {
		putOff()
	}
	if _, most := putOff(); most < 100*time.Millisecond {
		t.Errorf("after ten tries it is put off by %s", most)
	}
	free()
	c.Exec(`UPDATE punctual.ready SET due_at = now() WHERE run_id = $1`, run.ID)
	c.FinishAndRelease(Succeeded(c.Again()))
	run = c.Trigger("job")
	c.Stranger(`exclusive WHERE job_id = $1`, job.ID)
	if least, _ := putOff(); least > 50*time.Millisecond {
		t.Errorf("once it was free, it is put off by %s", least)
	}
}

// Runs that wait at one gate, such as catch-up runs that an edit made ready, start one at a time, oldest first.
func TestClaimReadyStartsTheOldestOfAGate(t *testing.T) {
	t.Parallel()
	for name, slots := range map[string]int{"with slots for all": 10, "with one slot": 1} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			job := c.Create("job", Forbid)
			hour := time.Now().UTC().Truncate(time.Hour)
			var oldest uuid.UUID
			for i := range 5 { // the newest run is written first
				slot := hour.Add(time.Duration(-i) * time.Hour)
				oldest = domain.SlotRunID(job.ID, slot)
				c.Exec(`WITH made AS (
						INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
						VALUES ($1, $2, $3, $3, $4, 1, $5, 'pending', 'catchup')
						RETURNING id)
					INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
					SELECT id, $2, $6, $4, $5
					FROM made`,
					oldest, job.ID, slot, c.Tenant, c.Queue*4+1, hour)
			}
			if a := c.One(c.ClaimReady(slots)); a.RunID != oldest {
				t.Errorf("the run of %s starts first", a.ScheduledFor)
			}
		})
	}
}

func TestARunThatIsOverOnlyLosesItsPlaceInReady(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Never)
	run := c.Trigger("job")
	c.Exec(`UPDATE punctual.runs SET status = 'cancelled', finished_at = now() WHERE id = $1`, run.ID)
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		VALUES (gen_random_uuid(), $1, now(), $2, $3)`, job.ID, c.Tenant, c.Queue*4+1)
	if b := c.ClaimReady(10); len(b.Runs) != 0 || b.Settled != 2 {
		t.Errorf("%d runs, %d settled", len(b.Runs), b.Settled)
	}
	if c.Ready(job.ID) != 0 || c.Count(`SELECT count(*) FROM punctual.claims`) != 0 {
		t.Error("something is left")
	}
	c.WantCount(1, "the run has changed",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'cancelled' AND attempt = 0`, run.ID)
}

func TestNextDueTellsWhatComes(t *testing.T) {
	c := NewReplica(t)
	ask := func(older bool) scheduler.Upcoming {
		t.Helper()
		queues := []int16{c.Queue}
		into := scheduler.LookInto{domain.WorkDue: queues, domain.WorkReady: queues, domain.WorkOrdered: queues}
		if older {
			into[domain.WorkLate] = queues
		}
		u, err := c.Claims.NextDue(t.Context(), into, false)
		Must(t, err)
		return u
	}
	if u := ask(true); !u.Schedule.IsZero() || !u.Ready.IsZero() || u.Older || u.Now.IsZero() {
		t.Errorf("with nothing at all: %+v", u)
	}
	c.Many(1, "older", time.Minute)
	c.Many(1, "soon", -time.Minute)
	c.Many(1, "later", -time.Hour)
	if u := ask(true); !u.Older || u.Schedule.Sub(u.Now) < 50*time.Second || u.Schedule.Sub(u.Now) > time.Minute {
		t.Errorf("%+v", u)
	}
	if u := ask(false); u.Older {
		t.Error("it looked for backlog unasked")
	}
	c.Create("job", Never)
	c.Trigger("job")
	if u := ask(false); u.Ready.IsZero() || u.Ready.After(u.Now) {
		t.Errorf("%+v", u)
	}
	queues := []int16{c.Queue}
	if u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{queues, queues, nil, queues}, true); err != nil ||
		!u.Schedule.After(u.Now) || !u.Ready.IsZero() || u.Older {
		t.Errorf("what is ahead: %+v, %v", u, err)
	}
	if u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{
		{c.Queue + 1}, {c.Queue + 1}, {c.Queue + 1}, {c.Queue + 1},
	}, false); err != nil || !u.Schedule.IsZero() || !u.Ready.IsZero() || u.Older {
		t.Errorf("another queue: %+v, %v", u, err)
	}
}

// A replica freezes between the round trips of a claim. It loses its locks, and later claims again.
//
//prove:replicas
func TestAFrozenClaimerLosesItsLocks(t *testing.T) {
	t.Parallel()
	direct := pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t))
	proxy, through := pgtest.NewProxy(t, direct)
	c := AsReplica(NewFixtureOn(t, direct))
	freezes := OpenReplica(t, through) // with one connection, on which a statement that was prepared stays prepared
	freezes.Claim(100, false)          // prepares its statements, so that the text comes within the transaction
	proxy.StallAfter("SKIP LOCKED")
	c.Many(1, "job", 0, Rarely, Tolerant)
	thawed := make(chan error, 1)
	go func() {
		_, err := freezes.Claims.ClaimDue(t.Context(), freezes.Asks(100, false))
		thawed <- err
	}()
	const ended = `SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()`
	c.Until("the claim to be frozen with the job locked, or to have ended for it", `
		SELECT count(*) + (`+ended+`) = 1 FROM pg_stat_activity
		WHERE state = 'idle in transaction' AND datname = current_database()`)
	for ctx := Bounded(t); c.Count(`SELECT count(*) FROM punctual.runs`) == 0; { // until Postgres ends the frozen claim
		if ctx.Err() != nil {
			t.Fatal("the job is still locked")
		}
		c.Claim(100, false)
		c.Claim(100, true)
	}
	if err := <-thawed; err != nil {
		t.Errorf("thawed, the claim fails: %v", err)
	}
	c.WantCount(1, "runs", `SELECT count(*) FROM punctual.runs`)
	c.Until("Postgres to count the frozen claim among those it ended", `SELECT (`+ended+`) = 1`)
}

func TestAClaimThatIsCutOffGivesItsLocksBack(t *testing.T) {
	c := NewReplica(t)
	job, _ := c.DueNow("job")
	c.Before("UPDATE", "schedules", `PERFORM pg_sleep(60);`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Claims.ClaimDue(ctx, c.Asks(1, false))
		ended <- err
	}()
	c.Until("the claim to stall", `SELECT count(*) = 1
		FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	cancel()
	if err := <-ended; err == nil {
		t.Error("it did not end")
	}
	c.Until("the claim to give back its lock",
		`SELECT count(*) = 1 FROM (SELECT FROM punctual.schedules WHERE job_id = $1 FOR UPDATE SKIP LOCKED) s`, job.ID)
	c.WantCount(0, "runs of a claim that was cut off", `SELECT count(*) FROM punctual.runs`)
}

func TestEverythingWorksThroughPgBouncer(t *testing.T) {
	t.Parallel()
	c := AsReplica(NewFixtureOn(t, pgtest.PgBouncer(t, pgtest.Server(t), pgtest.DSN(t), "default_pool_size = 2")))
	const jobs = 400
	c.Many(jobs, "job", 0, Rarely, Tolerant)
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(func() {
			for settled := 1; settled > 0; {
				var outcomes []domain.Outcome
				for _, older := range []bool{false, true} {
					b, err := c.Claims.ClaimDue(t.Context(), c.Asks(20, older))
					if err != nil {
						t.Error(err)
						return
					}
					for i, a := range b.Runs {
						if o := Succeeded(a); i%2 == 0 {
							outcomes = append(outcomes, o)
						} else {
							outcomes = append(outcomes, Failed(a))
						}
					}
				}
				settled = len(outcomes)
				if superseded, err := c.Claims.Finish(t.Context(), outcomes, nil); err != nil || superseded != 0 {
					t.Errorf("finish: %d superseded, %v", superseded, err)
				}
			}
		})
	}
	racers.Wait()
	for _, older := range []bool{false, true} {
		for b := c.Claim(100, older); len(b.Runs) > 0; b = c.Claim(100, older) {
			for _, a := range b.Runs {
				if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{Succeeded(a)}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := c.Count(`SELECT count(*) FROM punctual.runs WHERE status IN ('succeeded', 'retrying')`); n != jobs {
		t.Errorf("%d of %d runs went through", n, jobs)
	}
}

// The transaction's time limit must not stay on a connection that goes back to the pool.
func TestClaimsLeaveNoSettingBehind(t *testing.T) {
	c := NewReplica(t)
	c.Claim(10, false)
	c.ClaimReady(10)
	var limits []string
	for _, conn := range c.DB.Callers.AcquireAllIdle(t.Context()) {
		var limit string
		if err := conn.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&limit); err != nil {
			t.Error(err)
		}
		if conn.Conn().PgConn().TxStatus() != 'I' {
			t.Error("a connection came back within a transaction")
		}
		limits = append(limits, limit)
		conn.Release()
	}
	for _, limit := range limits {
		if limit != "0" {
			t.Errorf("a connection came back with a limit of %s", limit)
		}
	}
}

// patient gives a job an hourly schedule and a tolerance with which even old slots are in time.
func patient(d *jobspec.Definition) {
	Every(time.Hour)(d)
	Tolerating(1000 * time.Hour)(d)
}

func prioritised(p jobspec.Priority) Option {
	return func(d *jobspec.Definition) { d.Priority = p }
}
