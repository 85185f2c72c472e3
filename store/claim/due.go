package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/scheduler"
	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/freeze"
	"punctual/store/pg"
)

// insertClaimed inserts runs that nothing keeps from overlapping, with the fencing tokens of their schedules' rows.
// Arrays in the select list cost less than in FROM. A run that is there already fails the claim, which is then done
// again with insertGuarded: that statement costs twice as much.
var insertClaimed = `
INSERT INTO punctual.runs (replica, claimed_at, started_at, attempt, status, ` + fencedRuns.Names() + `)
SELECT ` + fencedRuns.Arg(1) + `, now(), now(), 1, 'running', ` + fencedRuns.Each()

var fencedRuns = append(plannedRuns[:len(plannedRuns):len(plannedRuns)],
	pg.Col("fence", "bigint", func(r plannedRun) int64 { return r.fence }))

const insertLease = `INSERT INTO punctual.claims (id, replica, run_ids) VALUES ($1, $2, $3::uuid[])`

// insertGuarded inserts runs whose fencing tokens are given under the locks of their gates, several runs of one job,
// and runs that may be there already. Their lease is that of the other runs (the third argument), too: a claim has one
// lease.
var insertGuarded = `
WITH made AS (
    INSERT INTO punctual.runs (replica, claimed_at, started_at, fence, attempt, status, ` + plannedRuns.Names() + `)
    SELECT ` + plannedRuns.Arg(1) + `, now(), now(), nextval('punctual.fences'), 1, 'running', u.*
    FROM ` + plannedRuns.Unnest("u") + `
    ON CONFLICT DO NOTHING
    RETURNING id, fence),
others AS (SELECT ` + plannedRuns.Arg(3) + `::uuid[] AS ids),
lease AS (
    INSERT INTO punctual.claims (id, replica, run_ids)
    SELECT ` + plannedRuns.Arg(2) + `, ` + plannedRuns.Arg(1) + `, o.ids || m.ids
    FROM others o, (SELECT array_agg(id) AS ids FROM made) m
    WHERE m.ids IS NOT NULL OR cardinality(o.ids) > 0)
SELECT id, fence FROM made`

// advanceSchedules moves each schedule to its next slot. After the last slot the job is completed. Only completed_at
// records that: this statement writes the schedule's row anyway, and job_state derives the job's state from it.
// One-shots are not among the schedules: see completeOneShots. Both find the rows by the addresses that ofSlots read:
// to look them up in an index by job took Postgres 2 µs a run.
var advanceSchedules = `
UPDATE punctual.schedules s
SET scheduled_for = u.scheduled_for, next_run_at = u.next_run_at,
    enabled = u.scheduled_for IS NOT NULL,
    completed_at = CASE WHEN u.scheduled_for IS NULL THEN now() END
FROM (SELECT ` + movedColumns.Each() + `) AS u(` + movedColumns.Names() + `)
WHERE s.ctid = u.at`

// completeOneShots ends one-shots, whose slot was their last one. That they have no row any more says that they are
// completed. An update would write its entries in indexes again: it took a fifth of Postgres's time for the whole run.
const completeOneShots = `DELETE FROM punctual.schedules WHERE ctid = ANY($1::tid[])`

// rememberCompleted notes which one-shots were completed, so that they can be forgotten.
const rememberCompleted = `
INSERT INTO punctual.completions (look_at, job_ids, versions)
VALUES (now() + interval '7 days', $1::uuid[], $2::int[])`

// moved is a schedule that goes on: the address of its row, and its next slot.
type moved struct {
	at          pgtype.TID
	slot, dueAt *time.Time // nil: no slot is left
}

var movedColumns = pg.Columns[moved]{
	pg.Col("at", "tid", func(m moved) pgtype.TID { return m.at }),
	pg.Col("scheduled_for", "timestamptz", func(m moved) *time.Time { return m.slot }),
	pg.Col("next_run_at", "timestamptz", func(m moved) *time.Time { return m.dueAt }),
}

// dueRow is a locked row of schedules.
type dueRow struct {
	key          definitions.Version
	at           pgtype.TID
	lane         int16
	tenant       int32
	scheduledFor time.Time
	fence        int64
	definition   []byte // nil: it is not read yet
}

// dueClaim is one claim of due slots on its way through the transaction.
type dueClaim struct {
	claims    *Claims
	claim     scheduler.Claim
	part      taking
	following Following
	wary      bool
	careful   bool // a run may be there already
	conn      *pgx.Conn
	now       time.Time
	rows      []dueRow
	found     *definitions.Found
	gatedSlots
	settledSlots
	next  nextRows
	batch domain.Batch
}

// gatedSlots are the gates of the slots' jobs, and what becomes of the runs that hold them or wait there.
type gatedSlots struct {
	gates   map[uuid.UUID]Gate
	pending map[uuid.UUID]int // waiting runs of jobs with the policy queue
	behind  []jobRun          // those that now wait at their gates
	cancel  []uuid.UUID
	expired []uuid.UUID // runs that have expired while they waited at their gate
}

// settledSlots is what becomes of the slots.
type settledSlots struct {
	free    []plannedRun        // runs that nothing keeps from overlapping
	guarded []plannedRun        // the other runs that start
	waiting []plannedRun        // runs that wait for their job's active run, or that need limits
	fences  map[uuid.UUID]int64 // fencing tokens, by run
	skips   []Skip
	started []RunEvent
}

// nextRows are what becomes of the claimed slots' schedules.
type nextRows struct {
	moved     []moved
	completed []dueRow // one-shots
	taken     []jobRun // gates that are taken by runs that start now
}

// ClaimDue implements scheduler.Store.
func (s *Claims) ClaimDue(ctx context.Context, claim scheduler.Claim) (domain.Batch, error) {
	var batch domain.Batch
	left, err := s.through(ctx, &s.sieves.due, func(ctx context.Context, of taking) ([]item, int, error) {
		c, err := s.claimDue(ctx, claim, of)
		if days.IsMissing(err) {
			// A slot's day has no partition: the slot was due long ago, such as a one-shot that was paused for weeks, or
			// maintenance has failed to prepare its day.
			if err := s.days.EnsureFor(ctx, s.db.Runs, c.slots()); err != nil {
				return nil, 0, err
			}
			c, err = s.claimDue(ctx, claim, of)
		}
		batch = c.batch
		return c.items(), c.batch.Settled, err
	})
	if err != nil {
		return domain.Batch{}, fmt.Errorf("claiming due slots: %w", err)
	}
	if left {
		batch.Full = everyQueue(claim.Quotas)
	}
	return batch, nil
}

// slots returns an instant of each day whose partition the claim needed.
func (c *dueClaim) slots() []time.Time {
	return append(pg.Column(slices.Concat(c.free, c.guarded, c.waiting),
		func(r plannedRun) time.Time { return r.ScheduledFor }), c.now)
}

func (c *dueClaim) items() []item {
	return pg.Column(c.rows, func(r dueRow) item { return item{r.key.Job, r.key.Job, r.tenant} })
}

// claimDue tries once to claim.
func (s *Claims) claimDue(ctx context.Context, claim scheduler.Claim, of taking) (c dueClaim, err error) {
	following, err := s.followers.Follow(ctx, s.db.Runs, pg.Everybody)
	if err != nil {
		return c, err
	}
	err = s.wary.due.try(func(wary bool) error {
		begin := func(careful bool) error {
			c = dueClaim{
				claims: s, claim: claim, part: of, following: following, wary: wary, careful: careful,
				settledSlots: settledSlots{fences: map[uuid.UUID]int64{}},
			}
			return s.onConn(ctx, s.db.Runs, c.work(ctx))
		}
		err := begin(false)
		if isThere(err) {
			err = begin(true)
		}
		return err
	})
	return c, err
}

// work makes the claim on a connection.
func (c *dueClaim) work(ctx context.Context) func(conn *pgx.Conn) error {
	return func(conn *pgx.Conn) error {
		c.conn = conn
		c.claim.Grant.Reset()
		failpoint.At(failpoint.ClaimBegun)
		if err := c.lock(ctx); err != nil || len(c.rows) == 0 {
			return err
		}
		failpoint.At(failpoint.ClaimLocked)
		if err := c.readFacts(ctx); err != nil {
			return err
		}
		c.decide()
		failpoint.At(failpoint.ClaimDecided)
		return c.write(ctx)
	}
}

// isThere reports whether a claim failed because one of its runs is there already.
func isThere(err error) bool {
	dbErr, is := errors.AsType[*pgconn.PgError](err)
	return is && dbErr.Code == "23505" && strings.HasPrefix(dbErr.TableName, "runs_")
}

// lock begins the transaction and locks the due rows, in one round trip.
func (c *dueClaim) lock(ctx context.Context) error {
	var b pgx.Batch
	var f freeze.Look
	sql, arguments := lockingSlots(c.claim, c.part, c.claims.uncompiled.Load())
	read := func(row pgx.CollectableRow) (r dueRow, err error) {
		err = row.Scan(
			&r.key.Job, &r.lane, &r.tenant, &r.scheduledFor, &r.key.Version, &r.at, &c.now, &r.fence, &r.definition)
		r.scheduledFor = r.scheduledFor.UTC()
		return r, err
	}
	c.claims.queueLock(&b, c.wary, sql, arguments).Query(pg.Into(&c.rows, read))
	f.Queue(&b)
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if c.batch.Halted = f.All; f.All {
		c.rows = nil
		return nil
	}
	c.batch.Full = usedUp(c.claim.Quotas, c.rows, func(r dueRow) place { return place{r.lane / 4, r.tenant} })
	c.rows = slices.DeleteFunc(c.rows, func(r dueRow) bool { return f.Leave(&c.batch, r.tenant) })
	// Every lock that follows is taken in this order.
	slices.SortFunc(c.rows, func(a, b dueRow) int { return pg.CompareIDs(a.key.Job, b.key.Job) })
	return nil
}

// readFacts reads the rows that the locks protect, in statements after the one that took the locks: definitions that
// are not compiled yet, and the gates of jobs whose runs must not overlap.
func (c *dueClaim) readFacts(ctx context.Context) error {
	var b pgx.Batch
	c.found = definitions.NewFound()
	for _, r := range c.rows {
		if r.definition != nil {
			c.claims.definitions.Take(c.found, r.key, r.tenant, r.definition)
		}
	}
	c.claims.definitions.Queue(&b, c.found, definitions.Of(c.rows, func(r dueRow) (definitions.Version, int32) {
		return r.key, r.tenant
	}))
	var gated []uuid.UUID
	for _, r := range c.rows {
		// A job whose policy is not known yet may have a gate.
		if job, known := c.found.Jobs[r.key]; !known || job.ConcurrencyPolicy != jobspec.PolicyAllow {
			gated = append(gated, r.key.Job)
		}
	}
	c.gates, c.pending = map[uuid.UUID]Gate{}, map[uuid.UUID]int{}
	if len(gated) > 0 {
		b.Queue(planAnew, pg.Prepared{}) // a gate leads to runs: those that hold it, are replaced or expire
		queueGates(&b, gated, c.gates)
	}
	if b.Len() > 0 {
		if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
	}
	c.claims.uncompiled.Store(2*c.found.Compiled > len(c.rows))
	if err := mendGates(ctx, c.conn, c.found.Jobs, c.gates); err != nil {
		return err
	}
	if err := c.claims.loadTokenKey(ctx, c.conn, c.found.Jobs); err != nil {
		return err
	}
	if err := c.countPending(ctx); err != nil {
		return err
	}
	if c.wary {
		if err := c.leaveLocked(ctx); err != nil {
			return err
		}
	}
	return c.claims.freeEndedGates(ctx, c.conn, c.gates, c.now)
}

// decide lets domain.Decide settle each row, and collects the plans.
func (c *dueClaim) decide() {
	var memo cron.Memo
	room := c.room()
	for _, r := range c.rows {
		job := c.found.Jobs[r.key]
		if job == nil {
			c.putOff(r)
			continue
		}
		mayStart := min(1+room[r.lane/4], max(1, c.claim.Grant.Room(r.tenant)))
		situation := domain.Situation{
			Job: job, ScheduledFor: r.scheduledFor, Now: c.now, Room: mayStart, Memo: &memo, Pending: c.pending[job.ID],
		}
		if job.ConcurrencyPolicy != jobspec.PolicyAllow {
			gate, ok := c.gates[job.ID]
			if !ok {
				continue // another transaction holds the gate: the slot stays due and is claimed a moment later
			}
			situation.Gate = gate.Facts()
		}
		plan := domain.Decide(situation)
		if len(c.claim.Replacing) > 0 && plan.Starts() > 0 {
			continue // the run to replace has ended: the slot is claimed like any other
		}
		if !c.claim.Grant.Take(r.tenant, plan.Starts()) {
			continue // its tenant is at a limit: the slot stays due
		}
		room[r.lane/4] -= max(0, len(plan.Runs)-1)
		c.cancel, c.expired = append(c.cancel, plan.Cancel...), append(c.expired, plan.Expired...)
		for _, p := range plan.Runs {
			if p.Waits {
				waits := newPlannedRun(job, r.lane, 0, p)
				if c.waiting = append(c.waiting, waits); p.AtGate {
					c.behind = append(c.behind, jobRun{job.ID, waits.id})
				}
				continue
			}
			c.start(job, r, p, len(plan.Runs) == 1)
		}
		for _, p := range plan.Skips {
			c.skips = append(c.skips, Skip{p, job, r.lane, domain.NewRunID(c.now)})
		}
		c.next.add(job, r, plan)
	}
}

// start adds a run that starts: the job's only one of this claim, or one of several. A token that was given under the
// lock of the schedule alone may be lower than that of a run which took the gate since.
func (c *dueClaim) start(job *domain.Job, r dueRow, p domain.PlannedRun, only bool) {
	gated := job.ConcurrencyPolicy != jobspec.PolicyAllow
	planned := newPlannedRun(job, r.lane, r.fence, p)
	run := planned.id
	if only && !gated && !c.careful {
		c.free = append(c.free, planned)
		c.fences[run] = r.fence
	} else {
		c.guarded = append(c.guarded, planned)
	}
	c.batch.Runs = append(c.batch.Runs, domain.Assignment{
		RunID: run, Job: job, Lane: r.lane, Trigger: p.Trigger,
		ScheduledFor: p.ScheduledFor, DueAt: p.DueAt, Late: p.Late, Attempt: 1, Gated: gated,
	})
	if c.following.Starts(job) {
		c.started = append(c.started, RunEvent{job, jobspec.EventStarted, run})
	}
	if gated {
		c.next.taken = append(c.next.taken, jobRun{job.ID, run})
	}
}

// room returns how many runs each queue's quota still allows when every row becomes one run: room for further
// runs of jobs that catch up.
func (c *dueClaim) room() map[int16]int {
	left := make(map[int16]int, len(c.claim.Quotas))
	for _, q := range c.claim.Quotas {
		left[q.Queue] += q.Slots
	}
	for _, r := range c.rows {
		left[r.lane/4]--
	}
	return left
}

func (c *dueClaim) putOff(r dueRow) {
	c.claims.options.Log.Error("a job cannot be scheduled by this version of Punctual; it is tried again in a minute",
		"job", r.key.Job, "version", r.key.Version, "error", c.found.Broken[r.key])
	c.next.move(r, &r.scheduledFor, new(c.now.Add(definitions.RetryIn)))
}

func (n *nextRows) add(job *domain.Job, r dueRow, plan domain.Plan) {
	switch {
	case !plan.Done:
		n.move(r, &plan.Next, &plan.NextRunAt)
	case job.Schedule.Kind().OneShot():
		n.completed = append(n.completed, r)
	default:
		n.move(r, nil, nil)
	}
}

func (n *nextRows) move(r dueRow, slot, dueAt *time.Time) {
	n.moved = append(n.moved, moved{r.at, slot, dueAt})
}

// queue queues the statements that move the schedules on.
func (n *nextRows) queue(b *pgx.Batch) {
	if len(n.moved) > 0 {
		b.Queue(advanceSchedules, pg.Prepared{}.With(movedColumns.Args(n.moved)...)...)
	}
	if len(n.completed) > 0 {
		b.Queue(completeOneShots, pg.Prepared{}, pg.Column(n.completed, func(r dueRow) pgtype.TID { return r.at }))
		b.Queue(rememberCompleted, pg.Prepared{},
			pg.Column(n.completed, func(r dueRow) uuid.UUID { return r.key.Job }),
			pg.Column(n.completed, func(r dueRow) int32 { return r.key.Version }))
	}
	queueTakeGates(b, n.taken, true)
}

// write inserts the runs, their lease and the skips, advances the schedules and commits, in one round trip. Of guarded
// runs this replica sends only those that the insert returned: a run that it did not return was there already.
func (c *dueClaim) write(ctx context.Context) error {
	if err := makeWay(ctx, c.conn, c.cancel, c.expired); err != nil {
		return err
	}
	lease := &domain.Lease{ID: cmp.Or(c.claim.Lease, uuid.New()), Work: c.claim.Work, ClaimedAt: c.now}
	var b pgx.Batch
	free := pg.Column(c.free, plannedRun.runID)
	if len(free) > 0 {
		b.Queue(insertClaimed, pg.Prepared{}.With(append(fencedRuns.Args(c.free), c.claim.Replica)...)...)
		if len(c.guarded) == 0 {
			b.Queue(insertLease, pg.Prepared{}, lease.ID, c.claim.Replica, free)
		}
	}
	if len(c.guarded) > 0 {
		args := append(plannedRuns.Args(c.guarded), c.claim.Replica, lease.ID, free)
		b.Queue(insertGuarded, pg.Prepared{}.With(args...)...).Query(pg.IntoMap(c.fences))
	}
	QueueSkips(&b, c.skips)
	c.next.queue(&b)
	queueWait(&b, c.behind)
	queuePending(&b, c.waiting)
	if events := slices.Concat(
		lateness(c.free), lateness(c.guarded), lateness(c.waiting), misses(c.skips), c.started,
	); len(events) > 0 {
		b.Queue(planAnew, pg.Prepared{})
		c.following.QueueEvents(&b, events)
	}
	b.Queue(`COMMIT`, pg.Prepared{})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	failpoint.At(failpoint.ClaimCommitted)
	c.claims.db.Ask(c.following.Asks()...)
	if len(c.cancel) > 0 {
		c.claims.db.Ask(Freed...)
	}
	c.claims.Over(slices.Concat(c.cancel, c.expired)...)
	c.batch.Runs = c.claims.withFences(c.batch.Runs, c.fences, lease)
	c.batch.Settled = len(c.next.moved) + len(c.next.completed)
	return nil
}
