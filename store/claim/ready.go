package claim

import (
	"cmp"
	"context"
	"fmt"
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
	"punctual/store/freeze"
	"punctual/store/pg"
)

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

// waitingClaim is one claim of runs that wait in ready, on its way through the transaction.
type waitingClaim struct {
	lockedRuns
	taking
	parking
	silent bool       // claims the attempts of overdue targets instead of due runs
	locked []readyRow // all rows that it has locked
	batch  domain.Batch

	subjects  []subject // in the order in which they decide
	others    *othersLocks
	contents  *contents
	gates     *gates
	deadlines *deadlines
	dated     *dated
	overlaps  *overlaps
	deletions *deletions
	limits    *limits
}

// readyRow is a locked row of ready or of dated.
type readyRow struct {
	run, job uuid.UUID
	tenant   int32
	lane     int16
	held     *domain.Held // why the run was held back; nil: it was not
	at       pgtype.TID   // the address of a row of dated
}

// newWaitingClaim returns a claim with its subjects in their order, which is explained in doc.go.
func newWaitingClaim(s *Claims, claim scheduler.Claim, of taking, silent bool) *waitingClaim {
	c := &waitingClaim{
		lockedRuns: lockedRuns{
			claims: s, claim: claim, rows: map[uuid.UUID]readyRow{}, busy: lockedRows{},
		},
		taking: of, silent: silent,
	}
	runs := &c.lockedRuns
	c.others, c.contents, c.gates = &othersLocks{lockedRuns: runs}, &contents{lockedRuns: runs}, newGates(runs)
	c.deadlines, c.dated = &deadlines{lockedRuns: runs}, &dated{lockedRuns: runs}
	c.overlaps = &overlaps{lockedRuns: runs, gates: c.gates}
	c.deletions, c.limits = &deletions{lockedRuns: runs}, &limits{lockedRuns: runs, overlaps: c.overlaps}
	c.subjects = []subject{
		c.others, c.contents, c.gates, c.deadlines, c.dated, c.overlaps, &lines{lockedRuns: runs, gates: c.gates},
		c.deletions, &slots{lockedRuns: runs}, c.limits, &starts{lockedRuns: runs},
	}
	return c
}

// ClaimReady implements scheduler.Store.
func (s *Claims) ClaimReady(ctx context.Context, claim scheduler.Claim) (domain.Batch, error) {
	var batch domain.Batch
	var more bool
	left, err := s.through(ctx, &s.sieves.ready, func(ctx context.Context, of taking) ([]item, int, error) {
		c, err := s.claimWaiting(ctx, claim, of, false)
		if days.IsMissing(err) { // of the day on which a dated run was due long ago
			if err := s.days.EnsureFor(ctx, s.db.Runs, c.dated.days()); err != nil {
				return nil, 0, err
			}
			c, err = s.claimWaiting(ctx, claim, of, false)
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

func (c *waitingClaim) items() []item {
	return pg.Column(c.locked, func(r readyRow) item { return item{r.run, r.job, r.tenant} })
}

// claimWaiting tries once to claim runs that wait: those that are due, or those that have passed their deadlines.
func (s *Claims) claimWaiting(
	ctx context.Context, claim scheduler.Claim, of taking, silent bool,
) (*waitingClaim, error) {
	c := newWaitingClaim(s, claim, of, silent)
	following, err := s.followers.Follow(ctx, s.db.Runs, pg.Everybody)
	if err != nil {
		return c, err
	}
	err = s.wary.ready.try(func(wary bool) error {
		c = newWaitingClaim(s, claim, of, silent)
		c.following, c.wary = following, wary
		return s.onConn(ctx, s.db.Runs, func(conn *pgx.Conn) error {
			c.conn = conn
			return c.work(ctx)
		})
	})
	return c, err
}

func (c *waitingClaim) work(ctx context.Context) error {
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
}

func (c *waitingClaim) lock(ctx context.Context) error {
	sql, arguments := c.selection()
	var f freeze.Look
	var b pgx.Batch
	c.claims.queueLock(&b, c.wary, sql, arguments).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var r readyRow
			var since, until *time.Time
			if err := rows.Scan(&r.run, &r.job, &r.tenant, &r.lane, &since, &until, &r.at, &c.now); err != nil {
				return err
			}
			if since != nil && until != nil {
				r.held = &domain.Held{Since: *since, Until: *until, Fetched: c.claim.Held != nil}
			}
			c.locked = append(c.locked, r)
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
		if !f.Leave(&c.batch, r.tenant) { // a target's deadline too waits until the tenant is unfrozen
			c.ids, c.rows[r.run] = append(c.ids, r.run), r
		}
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
func (c *waitingClaim) selection() (sql string, arguments []any) {
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

// readFacts reads the runs and their jobs, in statements after the one that took the locks. Then the subjects read.
func (c *waitingClaim) readFacts(ctx context.Context) error {
	if err := c.dated.enter(ctx); err != nil {
		return err
	}
	var b pgx.Batch
	queueGatesOfAny(&b, c.jobs(), c.gates.of)
	c.others.queue(&b)
	c.contents.queueRuns(&b)
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	if err := c.readDefinitions(ctx); err != nil {
		return err
	}
	for _, s := range c.subjects {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// decide lets each waiting run start, oldest first, unless a subject keeps it. Runs that replace others are decided
// about before all that they may replace, and the newest of them first.
func (c *waitingClaim) decide() {
	for _, r := range slices.Backward(c.runs) {
		if r.policy == jobspec.PolicyReplace {
			c.settle(r)
		}
	}
	for _, r := range c.runs {
		if r.policy != jobspec.PolicyReplace {
			c.settle(r)
		}
	}
}

// settle decides what becomes of a waiting run. Nothing is decided about one that another run has ended.
func (c *waitingClaim) settle(r *waitingRun) {
	if c.overlaps.over(r.RunID) {
		return
	}
	for _, s := range c.subjects {
		if v := s.decide(r); v != goesOn {
			c.note(r.RunID, v, c.now)
			c.limits.pass(r, v)
			return
		}
	}
	for _, s := range c.subjects {
		s.take(r)
	}
	c.starts(r)
}

// starts adds a run that starts.
func (c *waitingClaim) starts(r *waitingRun) {
	r.Held = c.rows[r.RunID].held
	c.start = append(c.start, r.RunID)
	if r.fresh && c.following.Starts(r.Job) {
		c.events = append(c.events, RunEvent{r.Job, jobspec.EventStarted, r.RunID})
	}
	if r.unsent && r.TurnsLate(c.now) { // the claim decides, so that the row says what the request says
		r.Late = true
		c.events = append(c.events, RunEvent{r.Job, jobspec.EventLate, r.RunID})
	}
	c.batch.Runs = append(c.batch.Runs, r.Assignment)
}

// write has the subjects write, starts the runs that start, ends attempts, and commits.
func (c *waitingClaim) write(ctx context.Context) error {
	wait, err := c.deadlines.heed(ctx)
	if err != nil {
		return err
	}
	for _, o := range wait {
		c.note(o.RunID, again(gateRetry), c.now)
	}
	var b pgx.Batch
	for _, s := range c.subjects {
		if err := s.write(ctx, &b); err != nil {
			return err
		}
	}
	c.queueParked(&b)
	leave := c.leaving()
	if len(leave) > 0 {
		b.Queue(`DELETE FROM punctual.ready WHERE run_id = ANY((SELECT $1::uuid[])::uuid[])`, pg.Prepared{}, leave)
	}
	lease := &domain.Lease{ID: cmp.Or(c.claim.Lease, uuid.New()), Work: c.claim.Work, ClaimedAt: c.now}
	fences := make(map[uuid.UUID]int64, len(c.start))
	if len(c.start) > 0 {
		late := c.whose(jobspec.EventLate)
		days.Common(c.start...).Queue(&b, startWaiting, c.start, c.claim.Replica, lease.ID, late).Query(pg.IntoMap(fences))
	}
	c.following.QueueEvents(&b, c.events)
	written := QueueFinish(&b, c.deadlines.ended, nil, Earlier{}, days.AnyDay, c.following)
	c.limits.queueRoom(&b)
	b.Queue(`COMMIT`, pg.Prepared{})
	if err := c.conn.SendBatch(ctx, &b).Close(); err != nil {
		return err
	}
	failpoint.At(failpoint.ReadyCommitted)
	c.batch.Runs = c.claims.withFences(c.batch.Runs, fences, lease)
	c.batch.Settled = c.dated.settled + len(leave) + len(c.parked) + len(c.overlaps.behind)
	c.tell(written)
	return nil
}

// leaving are the runs whose rows in ready go: all but those that are to be met again, and dated ones that start, which
// have none.
func (c *waitingClaim) leaving() (leave []uuid.UUID) {
	for _, id := range c.ids {
		if !c.stays[id] && (!c.dated.entered[id] || !slices.Contains(c.start, id)) {
			leave = append(leave, id)
		}
	}
	return leave
}

// tell says what has become of the runs, once the claim has committed.
func (c *waitingClaim) tell(written map[uuid.UUID]bool) {
	c.batch.Dropped = len(c.whose(jobspec.EventDropped))
	c.claims.db.Ask(c.following.Asks()...)
	if len(c.deletions.cancel)+len(c.overlaps.replaced)+len(c.deadlines.overtime) > 0 {
		c.claims.db.Ask(Freed...)
	}
	c.claims.Over(slices.Concat(c.deletions.cancel, c.overlaps.replaced, c.overlaps.expired)...)
	c.claims.Ended(c.deadlines.ended, written)
}
