package claim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/scheduler/failpoint"
	"punctual/scheduler/jobspec"
	"punctual/store/days"
	"punctual/store/definitions"
	"punctual/store/freeze"
	"punctual/store/pg"
	"punctual/store/seal"
)

// readWaiting reads the runs of locked rows of ready. A run that ended while it waited, because its job was deleted,
// is not found and only loses its row in ready. A run whose target works on has passed its deadline. A run that was
// claimed before may have come back to ready while its job was being deleted, and a run may have been caused meanwhile.
// The delete has then not seen it, so only for such a run the job's state is looked up. Bodies are read as many as fit
// into mostBodies.
var readWaiting = `
SELECT r.id, r.job_id, r.job_version, r.lane, r.trigger, r.scheduled_for, r.due_at, r.late, r.attempt,
       r.caused_by, coalesce(e.name, ''), CASE WHEN ` + fits + ` THEN e.body END, d.headers,
       CASE WHEN ` + fits + ` THEN d.body END, NOT ` + fits + `, coalesce(d.template, false), d.webhook_id,
       coalesce(d.idempotency_key, ''), coalesce(d.expires_after, '0'), coalesce(r.step, ''), r.parent_run,
       ` + ofTrace + `,
       r.accepted_at IS NOT NULL AND r.status = 'running', coalesce(r.accepted_at, r.created_at), coalesce(r.fence, 0),
       coalesce(r.started_at, now()),
       CASE WHEN r.status = 'running' THEN (
           SELECT count(*)
           FROM (SELECT a.outcome, a.reason FROM {attempts} a
                 WHERE a.run_id = r.id{prune a} ORDER BY a.fence DESC LIMIT 2) last
           WHERE last.outcome = 'lost' AND last.reason = 'silent') ELSE 0 END,
       CASE WHEN (r.claimed_at IS NOT NULL OR r.caused_by IS NOT NULL) AND r.status <> 'running'
            THEN coalesce((SELECT j.state = 'deleted' FROM punctual.jobs j WHERE j.id = r.job_id), true)
            ELSE false END,
       r.claimed_at IS NULL, r.started_at IS NULL,
       r.trigger = 'manual' AND r.rerun_of IS NULL AND r.created_at > r.due_at,
       ` + KeptColumns + `
FROM {runs} r
LEFT JOIN {run_data} d ON d.run_id = r.id{prune d}
LEFT JOIN punctual.events e ON e.id = r.caused_by
WHERE r.id = {ids}
  AND (r.status IN ('pending', 'retrying') OR (r.status = 'running' AND r.accepted_at IS NOT NULL))
ORDER BY r.id`

// mostBodies is how many bytes of bodies one claim reads. A run whose body would be more stays due for the next one.
const (
	mostBodies = 4 << 20
	bodies     = `sum(coalesce(octet_length(d.body), 0) + coalesce(octet_length(e.body), 0)) OVER (ORDER BY r.id)`
)

var fits = fmt.Sprintf(`(%s <= %d)`, bodies, mostBodies)

const startWaiting = `
WITH started AS (
    UPDATE {runs} r
    SET status = 'running', attempt = attempt + 1, fence = nextval('punctual.fences'), replica = $2,
        claimed_at = now(), started_at = now(), accepted_at = NULL, next_attempt_at = NULL,
        late = late OR id = ANY($4::uuid[]),
        error = CASE WHEN status = 'retrying' THEN error END -- what a pending run waited for is over
    WHERE r.id = {ids} AND r.status IN ('pending', 'retrying')
    RETURNING r.id, r.fence),
lease AS (
    INSERT INTO punctual.claims (id, replica, run_ids)
    SELECT $3, $2, array_agg(id) FROM started HAVING count(*) > 0)
SELECT id, fence FROM started`

// gateRetry is the longest for which a run is put off because another transaction has locked what it needs.
const gateRetry = time.Second

// readyClaim is one claim of ready runs on its way through the transaction.
type readyClaim struct {
	claims *Claims
	claim  scheduler.Claim
	taking
	parking
	silent    bool // claims the attempts of overdue targets instead of due runs
	more      bool // there may be more overdue attempts, or runs that are due
	following Following
	wary      bool
	dated     dated
	unsealed  unsealed
	busy      lockedRows // rows that others have locked: of runs, and of jobs (in jobs or notified)
	conn      *pgx.Conn
	now       time.Time
	locked    []readyRow
	ids       []uuid.UUID                // runs of the locked rows of ready, but for those of frozen tenants
	held      map[uuid.UUID]*domain.Held // why a run was held back, by run
	tenants   map[uuid.UUID]int32        // by run
	lanes     map[uuid.UUID]int16        // by run
	gatable   []uuid.UUID                // the jobs of the runs
	waiting   []waitingRun               // the runs that can still be sent
	found     definitions.Found
	gates     map[uuid.UUID]Gate
	overlaps  overlaps
	limits    readyLimits
	workflows map[uuid.UUID]*workflow // those whose runs are due, by run
	lines     map[uuid.UUID]*line     // of jobs with the policy queue
	overtime  []uuid.UUID             // workflows whose time is up, and that may still clean up
	leave     []uuid.UUID             // rows of ready to delete
	start     []uuid.UUID             // runs that start
	cancel    []uuid.UUID             // runs of deleted jobs
	taken     []jobRun                // gates that are taken, each by the run that starts
	present   presence
	late      []uuid.UUID // runs that start, and are late only now
	events    []RunEvent
	ended     []domain.Outcome // attempts of overdue targets
	batch     domain.Batch
}

// readyRow is a locked row of ready.
type readyRow struct {
	run, job uuid.UUID
	tenant   int32
	lane     int16
}

// waitingRun is a run in ready.
type waitingRun struct {
	key definitions.Version
	domain.Assignment

	policy  jobspec.ConcurrencyPolicy // decides whether it overlaps; empty: that is decided, or it waits for its turn
	overdue bool                      // the target works on, and has passed its deadline
	deleted bool                      // the run's job is deleted
	fresh   bool                      // it was never claimed before
	unsent  bool                      // no attempt of it was ever sent
	dated   bool                      // it was dated: it became a run once it was due
	heavy   bool                      // its body is not read, because those before it come to mostBodies
	started time.Time
	losses  int // attempts in a row, just before this one, that ended by silence: 0, 1 or 2 (for two or more)
	kept    KeptResponse
}

// ClaimReady implements scheduler.Store.
func (s *Claims) ClaimReady(ctx context.Context, claim scheduler.Claim) (domain.Batch, error) {
	var batch domain.Batch
	var more bool
	left, err := s.through(ctx, &s.sieves.ready, func(ctx context.Context, of taking) ([]item, int, error) {
		c, err := s.claimReady(ctx, readyClaim{claim: claim, taking: of})
		if days.IsMissing(err) { // of the day on which a dated run was due long ago
			slots := pg.Column(slices.Collect(maps.Keys(c.dated.at)), domain.IDTime)
			if err := s.days.EnsureFor(ctx, s.db.Runs, slots); err != nil {
				return nil, 0, err
			}
			c, err = s.claimReady(ctx, readyClaim{claim: claim, taking: of})
		}
		batch, more = c.batch, c.more
		return c.items(), c.batch.Settled, err
	})
	if err != nil {
		return domain.Batch{}, fmt.Errorf("claiming ready runs: %w", err)
	}
	s.giveSteps(ctx, batch.Runs)
	if left || more {
		batch.Full = everyQueue(claim.Quotas)
	}
	return batch, nil
}

func (c *readyClaim) items() []item {
	return pg.Column(c.locked, func(r readyRow) item { return item{r.run, r.job, r.tenant} })
}

// claimReady tries once to claim ready runs.
func (s *Claims) claimReady(ctx context.Context, what readyClaim) (c readyClaim, err error) {
	following, err := s.followers.Follow(ctx, s.db.Runs)
	if err != nil {
		return c, err
	}
	err = s.wary.ready.try(func(wary bool) error {
		c = what
		c.claims, c.following, c.wary, c.busy = s, following, wary, lockedRows{}
		c.dated = dated{at: map[uuid.UUID]pgtype.TID{}, entered: map[uuid.UUID]bool{}}
		c.tenants, c.held = map[uuid.UUID]int32{}, map[uuid.UUID]*domain.Held{}
		c.lanes, c.lines = map[uuid.UUID]int16{}, map[uuid.UUID]*line{}
		c.late = []uuid.UUID{} // null in SQL if it were nil
		return s.onConn(ctx, s.db.Runs, func(conn *pgx.Conn) error {
			c.conn = conn
			c.claim.Grant.Reset()
			if err := c.lock(ctx); err != nil || len(c.ids) == 0 {
				return err
			}
			failpoint.At(failpoint.ReadyLocked)
			if err := c.readFacts(ctx); err != nil {
				return err
			}
			c.decide()
			failpoint.At(failpoint.ReadyDecided)
			return c.write(ctx)
		})
	})
	return c, err
}

func (c *readyClaim) lock(ctx context.Context) error {
	sql, arguments := c.selection()
	var f freeze.Look
	var b pgx.Batch
	c.claims.queueLock(&b, c.wary, sql, arguments).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var r readyRow
			var since, until *time.Time
			var at pgtype.TID
			if err := rows.Scan(&r.run, &r.job, &r.tenant, &r.lane, &since, &until, &at, &c.now); err != nil {
				return err
			}
			if at.Valid {
				c.dated.at[r.run] = at
			}
			c.lanes[r.run] = r.lane
			c.locked = append(c.locked, r)
			if since != nil && until != nil {
				c.held[r.run] = &domain.Held{Since: *since, Until: *until, Fetched: c.claim.Held != nil}
			}
		}
		return rows.Err()
	})
	f.Queue(&b)
	b.Queue(planAnew, pg.Prepared{})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if c.batch.Halted = f.All; f.All {
		return nil
	}
	for _, r := range c.locked {
		if f.Leave(&c.batch, r.tenant) {
			continue // a target's deadline too waits until the tenant is unfrozen
		}
		c.ids, c.gatable = append(c.ids, r.run), append(c.gatable, r.job)
		c.tenants[r.run] = r.tenant
	}
	switch held := c.claim.Held; {
	case c.silent:
		c.more = len(c.locked) == silentBatch
	case held == nil:
		c.batch.Full = usedUp(c.claim.Quotas, c.locked, func(r readyRow) place { return place{r.lane / 4, r.tenant} })
	case len(c.locked) == held.Most:
		for _, lane := range held.Lanes {
			c.batch.Full = append(c.batch.Full, lane/4)
		}
	}
	slices.SortFunc(c.ids, pg.CompareIDs)
	return nil
}

// selection returns the statement that locks the rows of this kind of claim, and its arguments.
func (c *readyClaim) selection() (sql string, arguments []any) {
	switch held := c.claim.Held; {
	case c.only != nil && c.silent:
		return lockSilentOf, []any{c.only}
	case c.only != nil:
		return lockingOf(lockReadyOf, c.claim, c.only)
	case c.silent:
		return selectSilent, []any{pg.Prepared{}, silentBatch, c.not}
	case len(c.claim.Replacing) > 0:
		return lockReadyReplacing, []any{c.claim.Replacing, c.not, admit.BatchSize}
	case held != nil:
		return lockHeld, []any{held.Tenant, held.By, held.Lanes, append([]uuid.UUID{}, held.Not...), c.not, held.Most}
	}
	return lockingWaiting(c.claim, c.not, &c.claims.bounds[c.claim.Work])
}

// readFacts reads the runs, their jobs and their gates, in statements after the one that took the locks.
func (c *readyClaim) readFacts(ctx context.Context) error {
	if err := c.enterDated(ctx); err != nil {
		return err
	}
	var b pgx.Batch
	c.gates = map[uuid.UUID]Gate{}
	queueGatesOfAny(&b, c.gatable, c.gates)
	if c.wary { // lock the rows that the claim may write, after the gates, and find those that others have locked
		c.busy.queue(&b, "runs", c.ids)
		c.busy.queue(&b, "jobs", c.gatable)
		c.busy.queue(&b, "notified", c.gatable)
	}
	dayOfRuns(c.ids).queue(&b, readWaiting, c.ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var w waitingRun
			var headers seal.JSON
			var plain bool
			if err := rows.Scan(append([]any{
				&w.RunID, &w.key.Job, &w.key.Version, &w.Lane, &w.Trigger, &w.ScheduledFor, &w.DueAt, &w.Late, &w.Attempt,
				&w.CausedBy, &w.Event, (*seal.Bytes)(&w.EventBody), seal.Noting(&headers, &plain),
				seal.Noting((*seal.Bytes)(&w.Body), &plain), &w.heavy, &w.Template, &w.WebhookID, &w.IdempotencyKey,
				&w.ExpiresAfter, &w.Step, &w.Workflow, &w.TraceParent,
				&w.overdue, &w.AcceptedAt, &w.Fence, &w.started, &w.losses, &w.deleted, &w.fresh, &w.unsent,
				&w.dated,
			}, w.kept.Into()...)...); err != nil {
				return err
			}
			w.key.Step = w.Step
			if plain && !w.heavy && c.claims.db.Seals() {
				c.unsealed.add(w.RunID, w.Body, headers)
			}
			if headers != nil {
				if err := json.Unmarshal(headers, &w.Headers); err != nil {
					return fmt.Errorf("reading the headers of run %s: %w", w.RunID, err)
				}
			}
			if !w.overdue {
				w.Attempt, w.AcceptedAt = w.Attempt+1, time.Time{}
			}
			w.ScheduledFor, w.DueAt = w.ScheduledFor.UTC(), w.DueAt.UTC()
			c.waiting = append(c.waiting, w)
		}
		return rows.Err()
	})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	c.claims.later.learn(c.gates)
	var err error
	versions := definitions.Of(c.waiting, func(w waitingRun) (definitions.Version, int32) {
		return w.key, c.tenants[w.RunID]
	})
	if c.found, err = c.claims.definitions.Read(ctx, c.conn, versions); err != nil {
		return err
	}
	if err := c.readWorkflows(ctx); err != nil {
		return err
	}
	if err := c.readPresence(ctx); err != nil {
		return err
	}
	if err := mendGates(ctx, c.conn, c.found.Jobs, c.gates, c.lackingGates()...); err != nil {
		return err
	}
	if err := c.claims.loadTokenKey(ctx, c.conn, c.found.Jobs); err != nil {
		return err
	}
	c.passGatesOfSteps()
	if err := c.claims.freeEndedGates(ctx, c.conn, c.gates, c.now); err != nil {
		return err
	}
	if err := c.findUndecided(ctx); err != nil {
		return err
	}
	if err := c.readLines(ctx); err != nil {
		return err
	}
	return c.readLimits(ctx)
}

// passGatesOfSteps leaves alone the gates of jobs of which only steps wait: they are under the gate that their workflow
// has.
func (c *readyClaim) passGatesOfSteps() {
	whole := map[uuid.UUID]bool{}
	for _, w := range c.waiting {
		if w.Step == "" {
			whole[w.key.Job] = true
		}
	}
	maps.DeleteFunc(c.gates, func(job uuid.UUID, _ Gate) bool { return !whole[job] })
}

// decide lets each waiting run start, oldest first, unless its job's gate keeps it. It asks whether the job has a gate
// now. Runs that replace others are decided about before all that they may replace, and the newest of them first.
func (c *readyClaim) decide() {
	for _, w := range slices.Backward(c.waiting) {
		if w.policy == jobspec.PolicyReplace {
			c.settle(w)
		}
	}
	for _, w := range c.waiting {
		if w.policy != jobspec.PolicyReplace {
			c.settle(w)
		}
	}
	for _, id := range c.ids {
		if !c.stays[id] && (!c.dated.entered[id] || !slices.Contains(c.start, id)) {
			c.leave = append(c.leave, id)
		}
	}
}

// settle decides what becomes of a waiting run.
func (c *readyClaim) settle(w waitingRun) {
	if c.leaveLocked(w) || c.overlaps.over(w.RunID) {
		return
	}
	if w.heavy {
		c.stay(w.RunID)
		c.more = true
		return
	}
	job := c.found.Job(w.key)
	if job == nil {
		c.claims.options.Log.Error("a run cannot be sent by this version of Punctual; it is tried again in a minute",
			"run", w.RunID, "job", w.key.Job, "version", w.key.Version, "error", c.found.Why(w.key))
		c.putOff(w.RunID, definitions.RetryIn)
		return
	}
	g, there := c.gates[job.ID]
	catchesUp := job.CatchesUp(w.Trigger)
	w.Gated = w.Step == "" && // a step is under the gate that its workflow has
		(g.gated || catchesUp || g.active == w.RunID)
	switch holders := g.Holders(); {
	case w.Gated && g.busy, !there && (catchesUp || job.ConcurrencyPolicy != jobspec.PolicyAllow): // or it was just made
		c.putOff(w.RunID, c.claims.later.in(job.ID))
		return
	case c.missed(w, job):
		return
	case w.policy != "":
		if !c.admit(w, &g) {
			return
		}
	case w.Gated && !w.overdue && c.waitsAtGate(w, job, holders):
		c.parkOrSkip(w, job)
		return
	}
	if w.deleted {
		c.cancel = append(c.cancel, w.RunID)
		return
	}
	if !w.overdue && len(c.claim.Replacing) > 0 {
		c.stay(w.RunID) // it needs a worker slot: the row stays as it is
		return
	}
	if len(job.Limits) > 0 && !w.overdue && !c.mayStart(w, job) {
		return
	}
	if !w.overdue && !c.claim.Grant.Take(job.Tenant, 1) {
		c.stay(w.RunID) // its tenant is at a limit: the row stays as it is
		return
	}
	if len(job.Limits) > 0 && !w.overdue {
		w.Bounded = c.hold(w, job)
	}
	if w.Gated && !w.overdue && len(g.Holders()) == 0 {
		if g.active = w.RunID; g.Waiting == w.RunID {
			g.Waiting = uuid.Nil
		}
		c.gates[job.ID] = g
		c.taken = append(c.taken, jobRun{job.ID, w.RunID})
	}
	if w.overdue && job.IsWorkflow() {
		c.endWorkflow(w, job)
		return
	}
	if w.overdue {
		c.overdue(w, job)
		return
	}
	w.Job, w.Held = job, c.held[w.RunID]
	c.start = append(c.start, w.RunID)
	if w.fresh && c.following.Starts(job) {
		c.events = append(c.events, RunEvent{job, jobspec.EventStarted, w.RunID})
	}
	if w.unsent && w.TurnsLate(c.now) { // the claim decides, so that the row says what the request says
		w.Late = true
		c.late, c.events = append(c.late, w.RunID), append(c.events, RunEvent{job, jobspec.EventLate, w.RunID})
	}
	c.batch.Runs = append(c.batch.Runs, w.Assignment)
}

func (c *readyClaim) putOff(run uuid.UUID, delay time.Duration) {
	c.parking.putOff(run, c.now.Add(delay))
}

func (c *readyClaim) write(ctx context.Context) error {
	lease := &domain.Lease{ID: cmp.Or(c.claim.Lease, uuid.New()), Work: c.claim.Work, ClaimedAt: c.now}
	fences := make(map[uuid.UUID]int64, len(c.start))
	if err := c.heedReports(ctx); err != nil {
		return err
	}
	if err := c.dated.keep(ctx, c.conn, c.start); err != nil {
		return err
	}
	if len(c.cancel) > 0 {
		if _, err := CancelRuns(ctx, c.conn, c.cancel, domain.ReasonJobDeleted); err != nil {
			return err
		}
	}
	var b pgx.Batch
	c.dated.write(&b)
	c.unsealed.seal(&b)
	if err := c.overlaps.write(ctx, c.conn, &b); err != nil {
		return err
	}
	queueTakeGates(&b, c.taken, false)
	c.queueParked(&b)
	c.limits.queue(&b)
	if len(c.leave) > 0 {
		b.Queue(`DELETE FROM punctual.ready WHERE run_id = ANY((SELECT $1::uuid[])::uuid[])`, pg.Prepared{}, c.leave)
	}
	if len(c.start) > 0 {
		dayOfRuns(c.start).queue(&b, startWaiting, c.start, c.claim.Replica, lease.ID, c.late).Query(pg.IntoMap(fences))
	}
	c.following.QueueEvents(&b, c.events)
	if len(c.overtime) > 0 {
		b.Queue(beginOvertime, c.overtime)
	}
	written := QueueFinish(&b, c.ended, nil, Earlier{}, AnyDay, c.following)
	if roomy := c.limits.roomy(); len(roomy) > 0 {
		queueRelease(&b, roomy)
	}
	b.Queue(`COMMIT`, pg.Prepared{})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	failpoint.At(failpoint.ReadyCommitted)
	c.claims.db.Ask(c.following.Asks()...)
	if len(c.cancel)+len(c.overlaps.replaced)+len(c.overtime) > 0 {
		c.claims.db.Ask(Freed...)
	}
	c.claims.Over(slices.Concat(c.cancel, c.overlaps.replaced, c.overlaps.expired)...)
	c.batch.Runs = c.claims.withFences(c.batch.Runs, fences, lease)
	c.batch.Settled = c.dated.settled + len(c.leave) + len(c.parked) + len(c.overlaps.behind)
	c.claims.Ended(c.ended, written)
	return nil
}
