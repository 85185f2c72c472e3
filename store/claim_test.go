package store

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
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/claim"
	"punctual/store/jobs"
)

// claimer is a replica with a database of its own.
type claimer struct {
	crud
	replica uuid.UUID
	queue   int16
}

func newClaimer(t *testing.T) claimer { return asClaimer(newCRUD(t)) }

// claimerOnClone is newClaimer for a test of plans or of the sizes of tables.
func claimerOnClone(t *testing.T) claimer {
	t.Helper()
	t.Parallel()
	return asClaimer(newCRUDOn(t, pgtest.Clone(t)))
}

func asClaimer(c crud) claimer {
	c.t.Helper()
	r := claimer{crud: c, replica: uuid.New()}
	queues, err := c.Claims.Register(c.t.Context(),
		scheduler.Replica{ID: r.replica, Host: "here", Queues: map[string]int{"default": 100}})
	must(c.t, err)
	r.queue = queues["default"]
	return r
}

// many writes n jobs with the same definition, whose slots were due the given time ago.
func (c claimer) many(n int, prefix string, ago time.Duration, options ...option) {
	c.t.Helper()
	d := definition(prefix, options...)
	text, err := jobs.Encode(d)
	must(c.t, err)
	c.exec(`
		WITH made AS (
			INSERT INTO punctual.jobs (id, tenant, version, name, state, kind, queue)
			SELECT gen_random_uuid(), $2, 1, $3 || '-' || i, 'active', $4, $5
			FROM generate_series(1, $1::int) i
			RETURNING id),
		versions AS (
			INSERT INTO punctual.job_versions (job_id, version, state, definition)
			SELECT id, 1, 'active', $6::json
			FROM made)
		INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT id, date_trunc('second', now()) - $7::interval, date_trunc('second', now()) - $7::interval, $2, 1, $8, true
		FROM made`,
		n, c.tenant, prefix, string(d.Schedule.Kind()), c.queue, text, ago, d.WithDefaults().Priority.Lane(c.queue))
}

func (c claimer) claim(slots int, older bool) domain.Batch {
	c.t.Helper()
	b, err := c.Claims.ClaimDue(c.t.Context(), c.asks(slots, older))
	must(c.t, err)
	return b
}

// asks asks for due slots or for late ones. On a slow machine a slot may be late before a test comes to claim it. So
// due are those of the last 50 s, as in a claim around a tenant that is held back. No tenant is.
func (c claimer) asks(slots int, older bool) scheduler.Claim {
	claim := scheduler.Claim{
		Replica: c.replica, Work: domain.WorkDue, Quotas: []admit.Quota{{Queue: c.queue, Slots: slots}},
		Except: []int32{-1}, Since: 50 * time.Second,
	}
	if older {
		claim.Work, claim.Except = domain.WorkLate, nil
	}
	return claim
}

// claimReady claims the runs that wait in ready, ordered runs last.
func (c claimer) claimReady(slots int) domain.Batch {
	c.t.Helper()
	b := c.claimWaiting(domain.WorkReady, slots)
	if slots -= len(b.Runs); slots == 0 {
		return b
	}
	ordered := c.claimWaiting(domain.WorkOrdered, slots)
	b.Runs, b.Settled, b.Full = append(b.Runs, ordered.Runs...), b.Settled+ordered.Settled, append(b.Full, ordered.Full...)
	return b
}

func (c claimer) claimWaiting(of domain.Work, slots int) domain.Batch {
	c.t.Helper()
	b, err := c.Claims.ClaimReady(c.t.Context(),
		scheduler.Claim{Replica: c.replica, Work: of, Quotas: []admit.Quota{{Queue: c.queue, Slots: slots}}})
	must(c.t, err)
	return b
}

// one returns the only run of a claim, and fails the test if there is not exactly one.
func (c claimer) one(b domain.Batch) domain.Assignment {
	c.t.Helper()
	if len(b.Runs) != 1 {
		c.t.Fatalf("%d runs were claimed, want 1", len(b.Runs))
	}
	return b.Runs[0]
}

// begun triggers a run of a job and claims it.
func (c claimer) begun(job string) domain.Assignment {
	c.t.Helper()
	c.trigger(job)
	return c.one(c.claimReady(10))
}

// again makes the run that waits for its next attempt due, and claims it.
func (c claimer) again() domain.Assignment {
	c.t.Helper()
	c.exec(`UPDATE punctual.ready SET due_at = now()`)
	return c.one(c.claimReady(10))
}

// dueNow creates a job, by default with a slot every hour, and makes the slot of this second its next one. A claim of
// that slot is in time.
func (c claimer) dueNow(name string, options ...option) (jobs.Record, time.Time) {
	c.t.Helper()
	slot := c.now().Truncate(time.Second)
	hourly := func(d *domain.Definition) {
		d.Schedule = domain.Schedule{
			Every: domain.DurationOf(time.Hour), StartsAt: domain.InstantOf(slot.Add(-time.Hour)),
		}
	}
	job := c.create(name, append([]option{hourly}, options...)...)
	c.setNext(job.ID, slot)
	return job, slot
}

// A one-shot that fires must write neither its row in jobs nor the indexes of jobs: that took half of Postgres's time
// in a burst.
func TestTheClaimOfTheLastSlotCompletesTheJobAndLeavesItsRowAlone(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", at(time.Now().Add(time.Hour)))
	c.slotAgo(job.ID, 0)
	const row = `SELECT xmin::text::int FROM punctual.jobs WHERE id = $1`
	before := c.count(row, job.ID)
	c.one(c.claim(100, false))
	if c.count(row, job.ID) != before {
		t.Error("the row of the job was written")
	}
	got := c.get("job")
	if got.State != domain.JobCompleted || got.CompletedAt == nil || got.NextRunAt != nil {
		t.Errorf("the job is %s since %v, next at %v", got.State, got.CompletedAt, got.NextRunAt)
	}
	if names := c.jobNames(jobs.Filter{State: domain.JobCompleted}); !slices.Equal(names, []string{"job"}) {
		t.Errorf("completed are %q", names)
	}
	if names := c.jobNames(jobs.Filter{State: domain.JobActive}); len(names) != 0 {
		t.Errorf("active are %q", names)
	}
	again := c.create("job", delay(time.Hour)) // a completed job does not keep its name
	if c.get("job").ID != again.ID || c.get(job.ID.String()).State != domain.JobCompleted {
		t.Error("the name means another than the active job")
	}
}

func TestClaimDueMakesARunOfASlot(t *testing.T) {
	c := newClaimer(t)
	job, slot := c.dueNow("job")
	batch := c.claim(100, false)
	a := c.one(batch)
	want := domain.Assignment{
		RunID: domain.SlotRunID(job.ID, slot), Lane: c.queue*4 + 1, Trigger: domain.TriggerSchedule,
		ScheduledFor: slot, DueAt: slot, Attempt: 1, Fence: a.Fence, Job: a.Job, Lease: a.Lease,
	}
	if diff := cmp.Diff(want, a, cmp.Comparer(func(a, b *domain.Job) bool { return a == b })); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if a.Job.ID != job.ID || a.Job.Name != "job" || a.Fence == 0 || len(batch.Full) != 0 || batch.Settled != 1 ||
		a.Lease.Remaining != 1 || a.Lease.ClaimedAt.Before(slot) {
		t.Errorf("%+v, lease %+v", batch, a.Lease)
	}
	run := c.run(a.RunID)
	if run.Status != domain.StatusRunning || run.Attempt != 1 || run.JobVersion != 1 || run.Replica == nil ||
		*run.Replica != c.replica {
		t.Errorf("run %+v", run)
	}
	if next, due := c.next(job.ID); !next.Equal(slot.Add(time.Hour)) || !due.Equal(next) {
		t.Errorf("the next slot is %s, due %s", next, due)
	}
	c.wantCount(1, "no claim holds the run",
		`SELECT count(*) FROM punctual.claims WHERE id = $1 AND replica = $2 AND run_ids = ARRAY[$3::uuid]`, a.Lease.ID, c.replica, a.RunID)
}

func TestClaimDueTakesWhatIsDueOnly(t *testing.T) {
	c := newClaimer(t)
	c.many(1, "soon", -time.Minute)
	c.many(1, "older", time.Minute)
	c.many(1, "other", 0)
	c.exec(`UPDATE punctual.schedules SET lane = lane + 4
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'other-1')`)
	c.many(1, "off", 0)
	c.exec(`UPDATE punctual.schedules SET enabled = false
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'off-1')`)
	plain := c.asks(100, false)
	plain.Except = nil
	for _, asked := range []scheduler.Claim{plain, c.asks(100, false)} {
		if b, err := c.Claims.ClaimDue(t.Context(), asked); err != nil || len(b.Runs) != 0 || b.Settled != 0 {
			t.Errorf("claimed %+v, %v", b, err)
		}
	}
	if b := c.claim(100, true); b.Settled != 1 {
		t.Errorf("of the backlog %d were settled, want 1", b.Settled)
	}
	c.wantCount(1, "claims", `SELECT count(*) FROM punctual.claims`)
}

func TestEightClaimersNeverShareASlot(t *testing.T) {
	c := newClaimer(t)
	const jobs = 3000
	c.many(jobs, "job", time.Minute-2*time.Second, rarely, tolerant)
	var mu sync.Mutex
	seen := map[uuid.UUID]int{}
	fences := map[int64]bool{}
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			for settled := 1; settled > 0; {
				b, err := c.Claims.ClaimDue(t.Context(), c.asks(100, true))
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
	// A claimer that finds all rows locked stops early. This loop claims what is left.
	for b := c.claim(100, true); b.Settled > 0; b = c.claim(100, true) {
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
	if n := c.count(`SELECT count(DISTINCT (job_id, scheduled_for))
		FROM punctual.runs
		WHERE status = 'running'`); n != jobs {
		t.Errorf("%d slots have a run, want %d", n, jobs)
	}
	c.wantCount(jobs, "runs that claims hold", `SELECT sum(cardinality(run_ids)) FROM punctual.claims`)
}

// A slot comes again after a failover that lost the schedule's advance but not the run, and after a backfill of the
// slot.
func TestASlotThatHasItsRunIsNotSentAgain(t *testing.T) {
	c := newClaimer(t)
	job, slot := c.dueNow("job")
	first := c.one(c.claim(100, false))
	c.setNext(job.ID, slot)
	again := c.claim(100, false)
	if len(again.Runs) != 0 || again.Settled != 1 {
		t.Errorf("%d runs of a slot that has one; %d settled", len(again.Runs), again.Settled)
	}
	if next, _ := c.next(job.ID); !next.Equal(slot.Add(time.Hour)) {
		t.Errorf("the schedule stays at %s", next)
	}
	c.wantCount(1, "the first run has changed",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND fence = $2 AND status = 'running'`, first.RunID, first.Fence)
	c.wantCount(1, "claims, of which there is the first one's", `SELECT count(*) FROM punctual.claims`)
}

// A run that is there already keeps no other run of its claim from being sent once. Tokens of runs that must not
// overlap are given under the locks of their gates: after those of the slots, which are given under the locks of the
// schedules.
func TestAClaimWithARunThatIsThereAlreadyTakesTheOthers(t *testing.T) {
	c := newClaimer(t)
	there, slot := c.dueNow("there")
	c.one(c.claim(100, false))
	c.setNext(there.ID, slot)
	for _, again := range []bool{true, false} {
		for i := range 3 {
			c.dueNow(fmt.Sprintf("free-%d-%v", i, again))
			c.dueNow(fmt.Sprintf("gated-%d-%v", i, again), forbid)
		}
		b := c.claim(100, false)
		if again && b.Settled != 7 || !again && b.Settled != 6 || len(b.Runs) != 6 {
			t.Fatalf("%d settled, %d runs", b.Settled, len(b.Runs))
		}
		leases := map[uuid.UUID]int{}
		var free, gated int64
		for _, r := range b.Runs {
			leases[r.Lease.ID]++
			if n := c.count(`SELECT count(*)
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
		c.wantCount(0, "two runs have the same token", `SELECT count(DISTINCT fence) - count(*) FROM punctual.runs`)
		if !again && gated <= free {
			t.Errorf("tokens up to %d for free runs and from %d for gated ones", free, gated)
		}
		if len(leases) != 1 || c.count(`SELECT count(*) FROM punctual.claims WHERE cardinality(run_ids) = 6`) == 0 {
			t.Errorf("a replica keeps one lease for each claim; these are %v", leases)
		}
	}
}

func TestPrioritiesThenDueTimesDecideWhoComesFirst(t *testing.T) {
	c := newClaimer(t)
	// The job with the earlier slot is created first: a second that passes in between makes its slot earlier still.
	c.many(1, "low", 2*time.Second, rarely, prioritised(domain.PriorityLow), tolerant)
	c.many(1, "normal-early", time.Second, rarely, tolerant)
	c.many(1, "normal-late", 0, rarely, tolerant)
	c.many(1, "high", 0, rarely, prioritised(domain.PriorityHigh), tolerant)
	for _, want := range []string{"high-1", "normal-early-1", "normal-late-1", "low-1"} {
		a := c.one(c.claim(1, false))
		if name := c.text(`SELECT name FROM punctual.jobs WHERE id = $1`, a.Job.ID); name != want {
			t.Errorf("%s is claimed where %s comes first", name, want)
		}
	}
}

func TestClaimsNeverTakeMoreThanTheirQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		quota int
		jobs  map[domain.Priority]int
		want  int
		full  bool
	}{
		{"of one priority", 3, map[domain.Priority]int{domain.PriorityNormal: 10}, 3, true},
		{
			"of all priorities", 12,
			map[domain.Priority]int{domain.PriorityHigh: 5, domain.PriorityNormal: 5, domain.PriorityLow: 5},
			12, true,
		},
		{
			"of the highest", 2,
			map[domain.Priority]int{domain.PriorityHigh: 5, domain.PriorityNormal: 5, domain.PriorityLow: 5},
			2, true,
		},
		{"of what there is", 20, map[domain.Priority]int{domain.PriorityHigh: 5, domain.PriorityLow: 5}, 10, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			for p, n := range c.jobs {
				r.many(n, string(p), 0, rarely, prioritised(p), tolerant)
			}
			b := r.claim(c.quota, false)
			if len(b.Runs) != c.want || len(b.Full) != 0 != c.full || b.Settled != c.want {
				t.Errorf("%d runs, %d settled, full: %v", len(b.Runs), b.Settled, b.Full)
			}
		})
	}
}

// Catching up is paced: runs of a backlog need worker slots like other runs.
func TestCatchingUpKeepsToTheQuotaToo(t *testing.T) {
	c := newClaimer(t)
	c.many(3, "job", 30*time.Second, every(time.Second), missed(domain.MissedFireAll),
		tolerating(time.Second))
	b := c.claim(4, true)
	if len(b.Runs) != 4 || b.Settled != 3 {
		t.Errorf("%d runs of %d jobs with 4 slots, want 4 of 3", len(b.Runs), b.Settled)
	}
	if b := c.claim(100, true); len(b.Runs) != 30 {
		t.Errorf("%d runs of 3 jobs with 100 slots, want 10 of each", len(b.Runs))
	}
}

func TestALockedRowIsPassedOver(t *testing.T) {
	c := newClaimer(t)
	locked, _ := c.dueNow("locked")
	free, _ := c.dueNow("free")
	unlock := c.stranger(`schedules WHERE job_id = $1`, locked.ID)
	if a := c.one(c.claim(1, false)); a.Job.ID != free.ID {
		t.Error("not the one that is free")
	}
	unlock()
	if a := c.one(c.claim(1, false)); a.Job.ID != locked.ID {
		t.Error("not the one that was locked")
	}
}

// A claim writes the rows that it has locked by their addresses. A row may be written, and so move, after the claim's
// statement has begun and before it locks the row. The claim must then get the address of the new row.
func TestAClaimHasTheAddressOfTheRowThatItLocked(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("moves")
	const move = `UPDATE punctual.schedules SET version = 7 WHERE job_id = $1 RETURNING ctid`
	free := c.locks(`SELECT pg_advisory_xact_lock(1)`)
	sql, arguments := claim.Locking(c.asks(10, false))
	type locked struct {
		version int
		at      pgtype.TID
		err     error
	}
	claimed, conn := make(chan locked, 1), c.connect()
	go func() {
		var l locked
		l.err = conn.QueryRow(bounded(t), `
			SELECT c.version, c.at
			FROM (SELECT pg_advisory_xact_lock(1)) w CROSS JOIN LATERAL (`+sql+`) c`, arguments[1:]...).Scan(&l.version, &l.at)
		claimed <- l
	}()
	c.waiting(1)
	var moved pgtype.TID
	must(t, c.DB.Callers.QueryRow(t.Context(), move, job.ID).Scan(&moved))
	free()
	if l := <-claimed; l.err != nil || l.version != 7 || l.at != moved {
		t.Errorf("version %d at %v, error %v; want 7 at %v", l.version, l.at, l.err, moved)
	}
}

// A transaction that writes a row which refers to the job, such as a version or a gate, does not keep the job from
// being claimed.
func TestForeignKeyChecksDoNotHideADueJob(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("job")
	c.locks(`SELECT FROM punctual.jobs WHERE id = $1 FOR KEY SHARE`, job.ID)
	c.one(c.claim(1, false))
}

func TestClaimsAdvanceOneShotsAndSkips(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []option
		ago     time.Duration
		want    []string
		state   domain.JobState
	}{
		{
			"a one-shot completes its job",
			[]option{delay(time.Hour)},
			0,
			[]string{"schedule running"},
			domain.JobCompleted,
		},
		{
			"a late one-shot too",
			[]option{delay(time.Hour)},
			3 * time.Hour,
			[]string{"catchup running late"},
			domain.JobCompleted,
		},
		{
			"a one-shot that is skipped too",
			[]option{delay(time.Hour), missed(domain.MissedSkip)},
			3 * time.Hour,
			[]string{"schedule skipped missed x1"},
			domain.JobCompleted,
		},
		{
			"missed slots become one skip",
			[]option{halfPast, missed(domain.MissedSkip)},
			3 * time.Hour,
			[]string{"schedule skipped missed x4"},
			domain.JobActive,
		},
		{
			"and the newest runs late",
			[]option{halfPast},
			3 * time.Hour,
			[]string{"catchup running late", "schedule skipped missed x3"},
			domain.JobActive,
		},
		{
			"or all of them",
			[]option{halfPast, missed(domain.MissedFireAll)},
			2 * time.Hour,
			[]string{"catchup running late", "catchup running late", "catchup running late"},
			domain.JobActive,
		},
		{
			"an expired slot is recorded",
			[]option{halfPast, expiring(time.Millisecond)},
			time.Hour,
			[]string{"schedule skipped expired x1", "schedule skipped missed x1"},
			domain.JobActive,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newClaimer(t)
			job := r.create("job", append(slices.Clone(c.options), func(d *domain.Definition) {
				if c.ago > 0 {
					d.Missed.Tolerance = domain.DurationOf(time.Second)
				}
			})...)
			r.slotAgo(job.ID, c.ago)
			runs := len(r.claim(100, c.ago > 0).Runs)
			r.wantHistory(job.ID, c.want...)
			if running := strings.Count(strings.Join(c.want, " "), "running"); runs != running {
				t.Errorf("%d runs to send, want %d", runs, running)
			}
			if state := r.get(job.ID.String()).State; state != c.state {
				t.Errorf("the job is %s, want %s", state, c.state)
			}
			if c.state == domain.JobCompleted && r.count(`SELECT count(*)
				FROM punctual.schedules
				WHERE job_id = $1 AND (enabled OR scheduled_for IS NOT NULL
					OR next_run_at IS NOT NULL)`, job.ID) != 0 {
				t.Error("its schedule has not ended")
			}
		})
	}
}

func TestABrokenDefinitionIsPutOffAndBlocksNobody(t *testing.T) {
	c := newClaimer(t)
	broken, slot := c.dueNow("broken")
	c.exec(`UPDATE punctual.job_versions
		SET definition = '{"name":"broken","schedule":{"cron":"99 * * * *"},"target":{"url":"https://example.com"}}'
		WHERE job_id = $1`, broken.ID)
	garbled, _ := c.dueNow("garbled")
	c.exec(`UPDATE punctual.job_versions SET definition = '[]' WHERE job_id = $1`, garbled.ID)
	gone, _ := c.dueNow("gone")
	c.exec(`DELETE FROM punctual.job_versions WHERE job_id = $1`, gone.ID)
	good, _ := c.dueNow("good")
	if a := c.one(c.claim(100, false)); a.Job.ID != good.ID {
		t.Error("not the good one")
	}
	for _, job := range []uuid.UUID{broken.ID, garbled.ID, gone.ID} {
		next, due := c.next(job)
		if wait := due.Sub(slot); wait < 55*time.Second || wait > 70*time.Second || next.Before(slot) ||
			next.After(slot.Add(2*time.Second)) {
			t.Errorf("slot %s became %s, due %s", slot, next, due)
		}
	}
	if b := c.claim(100, false); b.Settled > 1 { // the slot of the good job may be due again
		t.Errorf("%d settled at once again", b.Settled)
	}
}

// A partition is missing for a one-shot that was paused for weeks, and in a database whose maintenance failed for days.
func TestAClaimMakesThePartitionItNeeds(t *testing.T) {
	for name, ago := range map[string]time.Duration{"of today": 0, "of weeks ago": 40 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			job := c.create("job", delay(time.Hour), tolerant)
			c.slotAgo(job.ID, ago)
			if ago == 0 {
				c.dropDays(0, 0)
			}
			a := c.one(c.claim(100, ago > 0))
			c.wantCount(1, "the run is not there", `SELECT count(*) FROM punctual.runs WHERE id = $1`, a.RunID)
		})
	}
}

// With fire_all after weeks, one claim makes ten runs on ten days. Most of these days are neither today nor the day of
// the schedule's slot.
func TestAClaimMakesThePartitionsOfAllItsRuns(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", every(24*time.Hour), missed(domain.MissedFireAll), window(30*24*time.Hour))
	slot := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -25)
	c.setNext(job.ID, slot)
	if b := c.claim(100, true); len(b.Runs) != 10 {
		t.Errorf("%d runs, want 10", len(b.Runs))
	}
}

func TestForbidNeverRunsTwice(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("job", forbid, missed(domain.MissedSkip))
	first := c.one(c.claim(100, false))
	c.slotAgo(job.ID, 0)
	c.exec(`UPDATE punctual.schedules
		SET scheduled_for = scheduled_for - interval '1 s', next_run_at = next_run_at - interval '1 s'
		WHERE job_id = $1`, job.ID)
	if b := c.claim(100, false); len(b.Runs) != 0 || b.Settled != 1 {
		t.Errorf("%d runs beside an active one, %d settled", len(b.Runs), b.Settled)
	}
	c.wantCount(1, "skips name the run in the way", `SELECT count(*)
		FROM punctual.runs
		WHERE job_id = $1 AND status = 'skipped' AND reason = 'overlap'
			AND blocked_by = $2`, job.ID, first.RunID)
}

func TestFreshGatesCountAsFree(t *testing.T) {
	for name, sql := range map[string]string{
		"when the active run is over":    `UPDATE punctual.runs SET status = 'dead', finished_at = now() WHERE job_id = $1`,
		"when the active run is missing": `UPDATE punctual.exclusive SET active_run = gen_random_uuid() WHERE job_id = $1`,
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			job, slot := c.dueNow("job", forbid)
			c.one(c.claim(100, false))
			c.exec(sql, job.ID)
			c.setNext(job.ID, slot.Add(-time.Second))
			c.one(c.claim(100, false))
		})
	}
}

func TestABusyGateLeavesTheSlotDue(t *testing.T) {
	c := newClaimer(t)
	job, slot := c.dueNow("job", forbid)
	c.stranger(`exclusive WHERE job_id = $1`, job.ID)
	if b := c.claim(100, false); len(b.Runs) != 0 || b.Settled != 0 {
		t.Errorf("%d runs, %d settled while the gate is busy", len(b.Runs), b.Settled)
	}
	if next, _ := c.next(job.ID); !next.Equal(slot) {
		t.Errorf("the slot %s has moved to %s", slot, next)
	}
}

func TestClaimReadyStartsWhatWaits(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never)
	triggered, err := c.For(c.tenant).TriggerJob(t.Context(), "job",
		jobs.TriggerRequest{Body: []byte(`{"a":1}`), Headers: map[string]string{"X-A": "b"}})
	must(t, err)
	batch := c.claimReady(10)
	a := c.one(batch)
	if a.RunID != triggered.ID || a.Job.ID != job.ID || a.Attempt != 1 || a.Trigger != domain.TriggerManual ||
		a.Fence == 0 || a.Lease.Remaining != 1 || batch.Settled != 1 || len(batch.Full) != 0 {
		t.Errorf("%+v", a)
	}
	if string(a.Body) != `{"a":1}` || a.Headers["X-A"] != "b" {
		t.Errorf("body %s, headers %v", a.Body, a.Headers)
	}
	if c.ready(job.ID) != 0 {
		t.Error("it still waits")
	}
	c.wantCount(1, "no claim holds it",
		`SELECT count(*) FROM punctual.claims WHERE id = $1 AND run_ids = ARRAY[$2::uuid]`, a.Lease.ID, a.RunID)
	if b := c.claimReady(10); len(b.Runs) != 0 {
		t.Error("it is claimed twice")
	}
}

func TestClaimReadyTakesByPriorityAndWithinItsQuota(t *testing.T) {
	c := newClaimer(t)
	for _, p := range []domain.Priority{domain.PriorityLow, domain.PriorityNormal, domain.PriorityHigh} {
		for i := range 3 {
			name := fmt.Sprintf("%s-%d", p, i)
			c.create(name, never, prioritised(p))
			c.trigger(name)
		}
	}
	first := c.claimReady(5)
	got := map[domain.Priority]int{}
	for _, a := range first.Runs {
		got[a.Job.Priority]++
	}
	if diff := cmp.Diff(
		map[domain.Priority]int{domain.PriorityHigh: 3, domain.PriorityNormal: 2}, got,
	); diff != "" || len(first.Full) == 0 {
		t.Errorf("full: %v, -want +got:\n%s", first.Full, diff)
	}
	if rest := c.claimReady(5); len(rest.Runs) != 4 {
		t.Errorf("%d left, want 4", len(rest.Runs))
	}
}

func TestClaimReadyLeavesAloneWhatItsGateHoldsUp(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", patient, forbid)
	dead := c.die("job", 1)[0]
	active := c.one(c.slot(job.ID, 1))
	again := c.replay(dead)
	if b := c.claimReady(10); len(b.Runs) != 0 || b.Settled != 1 {
		t.Errorf("%d runs beside an active one, %d settled", len(b.Runs), b.Settled)
	}
	c.wantCount(1, "it does not wait at the gate", `SELECT count(*)
		FROM punctual.ready
		WHERE run_id = $1 AND at_gate AND due_at > now() + interval '50 min'`, again.ID)
	c.finish(succeeded(active))
	c.wantCount(1, "it is not due when the gate is free",
		`SELECT count(*) FROM punctual.ready WHERE run_id = $1 AND NOT at_gate AND due_at <= now()`, again.ID)
	if a := c.one(c.claimReady(10)); a.RunID != again.ID {
		t.Error("not the replay")
	}
	if !c.hasGate(job.ID, again.ID) {
		t.Error("it does not hold the gate")
	}
}

// A claim that finds a gate locked puts the run off and looks at the gate again a moment later.
func TestClaimReadyPutsOffWhatStandsAtALockedGate(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never, forbid)
	run := c.trigger("job")
	c.stranger(`exclusive WHERE job_id = $1`, job.ID)
	if b := c.claimReady(10); len(b.Runs) != 0 || b.Settled != 0 {
		t.Errorf("%d runs, %d settled while the gate is locked", len(b.Runs), b.Settled)
	}
	c.wantCount(1, "it is not put off by a second", `SELECT count(*)
		FROM punctual.ready
		WHERE run_id = $1 AND NOT at_gate AND due_at > now() - interval '1 min'
			AND due_at <= now() + interval '1 s'`, run.ID)
}

// Runs that wait at one gate, such as catch-up runs that an edit made ready, start one at a time, oldest first.
func TestClaimReadyStartsTheOldestOfAGate(t *testing.T) {
	for name, slots := range map[string]int{"with slots for all": 10, "with one slot": 1} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			job := c.create("job", forbid)
			hour := time.Now().UTC().Truncate(time.Hour)
			var oldest uuid.UUID
			for i := range 5 { // the newest run is written first
				slot := hour.Add(time.Duration(-i) * time.Hour)
				oldest = domain.SlotRunID(job.ID, slot)
				c.exec(`WITH made AS (
						INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, tenant, job_version, lane, status, trigger)
						VALUES ($1, $2, $3, $3, $4, 1, $5, 'pending', 'catchup')
						RETURNING id)
					INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
					SELECT id, $2, $6, $4, $5
					FROM made`,
					oldest, job.ID, slot, c.tenant, c.queue*4+1, hour)
			}
			if a := c.one(c.claimReady(slots)); a.RunID != oldest {
				t.Errorf("the run of %s starts first", a.ScheduledFor)
			}
		})
	}
}

func TestARunThatIsOverOnlyLosesItsPlaceInReady(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never)
	run := c.trigger("job")
	c.exec(`UPDATE punctual.runs SET status = 'cancelled', finished_at = now() WHERE id = $1`, run.ID)
	c.exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		VALUES (gen_random_uuid(), $1, now(), $2, $3)`, job.ID, c.tenant, c.queue*4+1)
	if b := c.claimReady(10); len(b.Runs) != 0 || b.Settled != 2 {
		t.Errorf("%d runs, %d settled", len(b.Runs), b.Settled)
	}
	if c.ready(job.ID) != 0 || c.count(`SELECT count(*) FROM punctual.claims`) != 0 {
		t.Error("something is left")
	}
	c.wantCount(1, "the run has changed",
		`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'cancelled' AND attempt = 0`, run.ID)
}

func TestNextDueTellsWhatComes(t *testing.T) {
	c := newClaimer(t)
	ask := func(older bool) scheduler.Upcoming {
		t.Helper()
		queues := []int16{c.queue}
		into := scheduler.LookInto{domain.WorkDue: queues, domain.WorkReady: queues, domain.WorkOrdered: queues}
		if older {
			into[domain.WorkLate] = queues
		}
		u, err := c.Claims.NextDue(t.Context(), into, false)
		must(t, err)
		return u
	}
	if u := ask(true); !u.Schedule.IsZero() || !u.Ready.IsZero() || u.Older || u.Now.IsZero() {
		t.Errorf("with nothing at all: %+v", u)
	}
	c.many(1, "older", time.Minute)
	c.many(1, "soon", -time.Minute)
	c.many(1, "later", -time.Hour)
	if u := ask(true); !u.Older || u.Schedule.Sub(u.Now) < 50*time.Second || u.Schedule.Sub(u.Now) > time.Minute {
		t.Errorf("%+v", u)
	}
	if u := ask(false); u.Older {
		t.Error("it looked for backlog unasked")
	}
	c.create("job", never)
	c.trigger("job")
	if u := ask(false); u.Ready.IsZero() || u.Ready.After(u.Now) {
		t.Errorf("%+v", u)
	}
	queues := []int16{c.queue}
	if u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{queues, queues, nil, queues}, true); err != nil ||
		!u.Schedule.After(u.Now) || !u.Ready.IsZero() || u.Older {
		t.Errorf("what is ahead: %+v, %v", u, err)
	}
	if u, err := c.Claims.NextDue(t.Context(), scheduler.LookInto{
		{c.queue + 1}, {c.queue + 1}, {c.queue + 1}, {c.queue + 1},
	}, false); err != nil || !u.Schedule.IsZero() || !u.Ready.IsZero() || u.Older {
		t.Errorf("another queue: %+v, %v", u, err)
	}
}

// A replica that freezes between the round trips of a claim must not keep its locked jobs from other replicas. Thawed,
// it makes the claim again.
func TestAFrozenClaimerLosesItsLocks(t *testing.T) {
	t.Parallel()
	direct := pgtest.TCP(t, pgtest.Server(t), pgtest.DSN(t))
	proxy, through := pgtest.NewProxy(t, direct)
	c := asClaimer(newCRUDOn(t, direct))
	freezes := openClaimer(t, through) // with one connection, on which a statement that was prepared stays prepared
	freezes.claim(100, false)          // prepares its statements, so that the text comes within the transaction
	proxy.StallAfter("SKIP LOCKED")
	c.many(1, "job", 0, rarely, tolerant)
	thawed := make(chan error, 1)
	go func() {
		_, err := freezes.Claims.ClaimDue(t.Context(), freezes.asks(100, false))
		thawed <- err
	}()
	const ended = `SELECT sessions_fatal FROM pg_stat_database WHERE datname = current_database()`
	c.until("the claim to be frozen with the job locked, or to have ended for it", `
		SELECT count(*) + (`+ended+`) = 1 FROM pg_stat_activity
		WHERE state = 'idle in transaction' AND datname = current_database()`)
	for ctx := bounded(t); c.count(`SELECT count(*) FROM punctual.runs`) == 0; { // until Postgres ends the frozen claim
		if ctx.Err() != nil {
			t.Fatal("the job is still locked")
		}
		c.claim(100, false)
		c.claim(100, true)
	}
	if err := <-thawed; err != nil {
		t.Errorf("thawed, the claim fails: %v", err)
	}
	c.wantCount(1, "runs", `SELECT count(*) FROM punctual.runs`)
	c.until("Postgres to count the frozen claim among those it ended", `SELECT (`+ended+`) = 1`)
}

func TestAClaimThatIsCutOffGivesItsLocksBack(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("job")
	c.before("UPDATE", "schedules", `PERFORM pg_sleep(60);`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Claims.ClaimDue(ctx, c.asks(1, false))
		ended <- err
	}()
	c.until("the claim to stall", `SELECT count(*) = 1
		FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event = 'PgSleep'`)
	cancel()
	if err := <-ended; err == nil {
		t.Error("it did not end")
	}
	c.until("the claim to give back its lock",
		`SELECT count(*) = 1 FROM (SELECT FROM punctual.schedules WHERE job_id = $1 FOR UPDATE SKIP LOCKED) s`, job.ID)
	c.wantCount(0, "runs of a claim that was cut off", `SELECT count(*) FROM punctual.runs`)
}

func TestEverythingWorksThroughPgBouncer(t *testing.T) {
	t.Parallel()
	c := asClaimer(newCRUDOn(t, pgtest.PgBouncer(t, pgtest.Server(t), pgtest.DSN(t), "default_pool_size = 2")))
	const jobs = 400
	c.many(jobs, "job", 0, rarely, tolerant)
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(func() {
			for settled := 1; settled > 0; {
				var outcomes []domain.Outcome
				for _, older := range []bool{false, true} {
					b, err := c.Claims.ClaimDue(t.Context(), c.asks(20, older))
					if err != nil {
						t.Error(err)
						return
					}
					for i, a := range b.Runs {
						if o := succeeded(a); i%2 == 0 {
							outcomes = append(outcomes, o)
						} else {
							outcomes = append(outcomes, failed(a))
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
		for b := c.claim(100, older); len(b.Runs) > 0; b = c.claim(100, older) {
			for _, a := range b.Runs {
				if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{succeeded(a)}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE status IN ('succeeded', 'retrying')`); n != jobs {
		t.Errorf("%d of %d runs went through", n, jobs)
	}
}

// The transaction's time limit must not stay on a connection that goes back to the pool.
func TestClaimsLeaveNoSettingBehind(t *testing.T) {
	c := newClaimer(t)
	c.claim(10, false)
	c.claimReady(10)
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
