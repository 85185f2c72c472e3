package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/claim"
	"punctual/store/jobs"
	"punctual/store/seal"
)

// Replica is a replica with a database of its own.
type Replica struct {
	Fixture
	ReplicaID uuid.UUID
	Queue     int16
}

// NewReplica returns a replica that is registered in a store with a database of its own.
func NewReplica(t *testing.T) Replica { return AsReplica(NewFixture(t)) }

// ReplicaOnClone is NewReplica for a test of plans or of the sizes of tables.
func ReplicaOnClone(t *testing.T) Replica {
	t.Helper()
	t.Parallel()
	return AsReplica(NewFixtureOn(t, pgtest.Clone(t)))
}

// AsReplica registers a replica in the store of a fixture.
func AsReplica(c Fixture) Replica {
	c.T.Helper()
	r := Replica{Fixture: c, ReplicaID: uuid.New()}
	queues, err := c.Replicas.Register(c.T.Context(),
		scheduler.Replica{ID: r.ReplicaID, Host: "here", Queues: map[string]int{"default": 100}})
	Must(c.T, err)
	r.Queue = queues["default"]
	return r
}

// Many writes n jobs with the same definition, whose slots were due the given time ago.
func (c Replica) Many(n int, prefix string, ago time.Duration, options ...Option) {
	c.T.Helper()
	d := Definition(prefix, options...)
	text, err := jobs.Encode(d)
	Must(c.T, err)
	c.Exec(`
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
		n, c.Tenant, prefix, string(d.Schedule.Kind()), c.Queue, text, ago, d.WithDefaults().Priority.Lane(c.Queue))
}

// Claim claims slots that are due, or older ones that are late.
func (c Replica) Claim(slots int, older bool) domain.Batch {
	c.T.Helper()
	b, err := c.Claims.ClaimDue(c.T.Context(), c.Asks(slots, older))
	Must(c.T, err)
	return b
}

// Asks asks for due slots or for late ones. On a slow machine a slot may be late before a test comes to claim it. So
// due are those of the last 50 s, as in a claim around a tenant that is held back. No tenant is.
func (c Replica) Asks(slots int, older bool) scheduler.Claim {
	claim := scheduler.Claim{
		Replica: c.ReplicaID, Work: domain.WorkDue, Quotas: []admit.Quota{{Queue: c.Queue, Slots: slots}},
		Except: []int32{-1}, Since: 50 * time.Second,
	}
	if older {
		claim.Work, claim.Except = domain.WorkLate, nil
	}
	return claim
}

// ClaimReady claims the runs that wait in ready, ordered runs last.
func (c Replica) ClaimReady(slots int) domain.Batch {
	c.T.Helper()
	b := c.ClaimWaiting(domain.WorkReady, slots)
	if slots -= len(b.Runs); slots == 0 {
		return b
	}
	ordered := c.ClaimWaiting(domain.WorkOrdered, slots)
	b.Runs, b.Settled, b.Full = append(b.Runs, ordered.Runs...), b.Settled+ordered.Settled, append(b.Full, ordered.Full...)
	return b
}

// ClaimWaiting claims runs that wait in ready.
func (c Replica) ClaimWaiting(of domain.Work, slots int) domain.Batch {
	c.T.Helper()
	b, err := c.Claims.ClaimReady(c.T.Context(),
		scheduler.Claim{Replica: c.ReplicaID, Work: of, Quotas: []admit.Quota{{Queue: c.Queue, Slots: slots}}})
	Must(c.T, err)
	return b
}

// One returns the only run of a claim, and fails the test if there is not exactly one.
func (c Replica) One(b domain.Batch) domain.Assignment {
	c.T.Helper()
	if len(b.Runs) != 1 {
		c.T.Fatalf("%d runs were claimed, want 1", len(b.Runs))
	}
	return b.Runs[0]
}

// Begun triggers a run of a job and claims it.
func (c Replica) Begun(job string) domain.Assignment {
	c.T.Helper()
	c.Trigger(job)
	return c.One(c.ClaimReady(10))
}

// Again makes the run that waits for its next attempt due, and claims it.
func (c Replica) Again() domain.Assignment {
	c.T.Helper()
	c.Exec(`UPDATE punctual.ready SET due_at = now()`)
	return c.One(c.ClaimReady(10))
}

// DueNow creates a job, by default with a slot every hour, and makes the slot of this second its next one. A claim of
// that slot is in time.
func (c Replica) DueNow(name string, options ...Option) (jobs.Record, time.Time) {
	c.T.Helper()
	slot := c.Clock().Truncate(time.Second)
	hourly := func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{
			Every: jobspec.DurationOf(time.Hour), StartsAt: jobspec.InstantOf(slot.Add(-time.Hour)),
		}
	}
	job := c.Create(name, append([]Option{hourly}, options...)...)
	c.SetNext(job.ID, slot)
	return job, slot
}

// Accepted makes a run of a new job whose target has answered 202.
func (c Replica) Accepted(name string, options ...Option) domain.Assignment {
	c.T.Helper()
	a := c.Manual(name, append([]Option{ByCallback}, options...)...)
	c.Accept(a)
	return a
}

// Accept has the target of an attempt answer 202.
func (c Replica) Accept(a domain.Assignment) {
	c.T.Helper()
	o := Ended(a, domain.Await)
	o.HTTPStatus, o.RetryIn = 202, time.Minute
	c.FinishAndRelease(o)
}

// Overdue lets the deadline of a run pass and then ends silent attempts as replicas do; replicas have renewed their
// heartbeat all the while. It reports whether the attempt was ended.
func (c Replica) Overdue(run uuid.UUID) bool {
	c.T.Helper()
	c.Exec(`UPDATE punctual.deployment SET back_at = '-infinity'`)
	c.Exec(`UPDATE punctual.replicas SET renewed_at = now()`)
	c.Exec(`UPDATE punctual.ready SET due_at = now() - interval '1 s' WHERE run_id = $1`, run)
	before := c.Text(`SELECT fence::text FROM punctual.runs WHERE id = $1 AND status = 'running'`, run)
	c.Listen()
	return c.Count(`SELECT count(*) FROM punctual.runs WHERE id = $1 AND status = 'running' AND fence::text = $2`,
		run, before) == 0
}

// Listen ends the attempts of targets that missed their deadlines, as replicas do.
func (c Replica) Listen() {
	c.T.Helper()
	for left := true; left; {
		var wait time.Duration
		var err error
		if wait, left, err = c.Claims.EndSilent(c.T.Context()); err != nil {
			c.T.Fatal(err)
		}
		left = left && wait == 0
	}
}

// Beat is a heartbeat of a run's target, with its progress if there is any.
func (c Replica) Beat(a domain.Assignment, progress string) (claim.Heartbeat, error) {
	var raw json.RawMessage
	if progress != "" {
		raw = json.RawMessage(progress)
	}
	return c.Claims.HeartbeatRun(c.T.Context(), a.RunID, a.RunToken, raw)
}

// MustBeat is Beat without an error.
func (c Replica) MustBeat(a domain.Assignment, progress string) claim.Heartbeat {
	c.T.Helper()
	b, err := c.Beat(a, progress)
	Must(c.T, err)
	return b
}

// NothingLeft fails the test if a row remains in a table that has rows of unfinished runs only.
func (c Replica) NothingLeft() {
	c.T.Helper()
	c.WantCount(0, "rows are left in ready, claims and exclusive", `SELECT (SELECT count(*) FROM punctual.ready)
		+ (SELECT count(*) FROM punctual.claims)
		+ (SELECT count(active_run) + count(waiting_run) FROM punctual.exclusive)`)
}

// ClaimAll registers a replica and claims what is due and ready in the default queue.
func (c Fixture) ClaimAll(replica uuid.UUID) []domain.Assignment {
	c.T.Helper()
	if _, err := c.Replicas.Register(c.T.Context(),
		scheduler.Replica{ID: replica, Host: "test", Version: "test", Queues: map[string]int{"default": 10}}); err != nil {
		c.T.Fatal(err)
	}
	claim := scheduler.Claim{Replica: replica, Quotas: []admit.Quota{{Queue: 1, Slots: 10}}}
	runs := Replica{Fixture: c, ReplicaID: replica, Queue: 1}.Claim(10, false).Runs
	for _, claim.Work = range []domain.Work{domain.WorkReady, domain.WorkOrdered} {
		ready, err := c.Claims.ClaimReady(c.T.Context(), claim)
		Must(c.T, err)
		runs = append(runs, ready.Runs...)
	}
	return runs
}

// Finish writes one outcome.
func (c Fixture) Finish(a domain.Assignment, verdict domain.Verdict, reason domain.Reason) {
	c.T.Helper()
	o := domain.Outcome{
		Assignment: a, Verdict: verdict, Reason: reason, StartedAt: a.Lease.ClaimedAt,
		FinishedAt: a.Lease.ClaimedAt, HTTPStatus: 200, RetryIn: time.Hour,
	}
	if n, err := c.Claims.Finish(c.T.Context(), []domain.Outcome{o}, []uuid.UUID{a.Lease.ID}); err != nil || n != 0 {
		c.T.Fatalf("finish: superseded %d, error %v", n, err)
	}
}

// Cancel cancels a run.
func (c Fixture) Cancel(run uuid.UUID) {
	c.T.Helper()
	if _, err := c.Runs.CancelRun(c.T.Context(), c.Tenant, run); err != nil {
		c.T.Fatal(err)
	}
}

// Neighbour makes another tenant that uses the same queue.
func (c Replica) Neighbour(weight int) Replica {
	c.T.Helper()
	c.Tenant = Value[int32](c.Fixture,
		`INSERT INTO punctual.tenants (name, weight) VALUES ('neighbour', $1) RETURNING id`, weight)
	return c
}

// HasGate reports whether a run holds the gate of its job.
func (c Fixture) HasGate(job, run uuid.UUID) bool {
	c.T.Helper()
	return c.Count(`SELECT count(*) FROM punctual.exclusive WHERE job_id = $1 AND active_run = $2`, job, run) == 1
}

// Down is the key of a host that the breaker holds back.
const Down = "breaker a.test:443"

// Hold is the outcome that parks a run for a while.
func Hold(a domain.Assignment, by string, since time.Time, patience time.Duration) domain.Outcome {
	o := Unsent(a, domain.Hold)
	o.Held = &domain.Held{By: by, Since: since, Until: since.Add(patience)}
	o.RetryIn, o.Error = patience, "waiting: the circuit breaker of a.test:443 is open"
	return o
}

// Connect opens a connection beside those of the store.
func (c Fixture) Connect() *pgx.Conn {
	c.T.Helper()
	conn, err := pgtest.Connect(c.T.Context(), c.Options.DatabaseURL)
	Must(c.T, err)
	c.T.Cleanup(func() { _ = conn.Close(context.WithoutCancel(c.T.Context())) })
	return conn
}

// Transaction begins a transaction on a connection of its own, which seals and opens payloads as those of the store do.
func (c Fixture) Transaction() pgx.Tx {
	c.T.Helper()
	conn := c.Connect()
	(*seal.Sealer)(nil).Register(conn)
	tx, err := conn.Begin(c.T.Context())
	Must(c.T, err)
	return tx
}

// Locks runs a statement, which must find something to lock, in a transaction that ends when free is called.
func (c Fixture) Locks(sql string, args ...any) (free func()) {
	c.T.Helper()
	tx := c.Transaction()
	locked, err := tx.Exec(c.T.Context(), sql, args...)
	if err != nil || locked.Select() && locked.RowsAffected() == 0 {
		c.T.Fatalf("%s: %s, %v", sql, locked, err)
	}
	return func() {
		Must(c.T, tx.Rollback(c.T.Context()))
	}
}

// Stranger locks rows until free is called, like a person who locks them in psql and then goes for lunch.
func (c Fixture) Stranger(rows string, args ...any) (free func()) {
	c.T.Helper()
	return c.Locks(`SELECT FROM punctual.`+rows+` FOR UPDATE`, args...)
}

// FinishWhatItCan writes outcomes and ends their leases. It returns the runs and the leases that were left because of
// locked rows.
func (c Replica) FinishWhatItCan(outcomes ...domain.Outcome) (runs, leases []uuid.UUID) {
	c.T.Helper()
	var released []uuid.UUID
	for _, o := range outcomes {
		released = append(released, o.Lease.ID)
	}
	superseded, err := c.Claims.Finish(Bounded(c.T), outcomes, released)
	if left, is := errors.AsType[*scheduler.LeftOutcomesError](err); is {
		runs, leases, err = slices.Collect(maps.Keys(left.Runs)), left.Leases, nil
	}
	if err != nil || superseded != 0 {
		c.T.Fatalf("%d superseded, %v", superseded, err)
	}
	return runs, leases
}

// Bounded returns a context that ends a wait for a lock after 30 s.
func Bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Is says what has become of a run.
func (c Fixture) Is(run uuid.UUID) string {
	c.T.Helper()
	r := c.Run(run)
	return strings.TrimSpace(string(r.Status) + " " + string(OrEmpty(r.Reason)))
}

// Lose makes a replica look lost: its row in replicas is gone, and its claims are still there.
func (c Fixture) Lose(replica uuid.UUID) {
	c.Exec(`DELETE FROM punctual.replicas WHERE id = $1`, replica)
}

// Recover takes the runs of lost replicas back, and says how many.
func (c Fixture) Recover() int {
	c.T.Helper()
	n, err := c.Replicas.Recover(c.T.Context(), nil)
	Must(c.T, err)
	return n
}

// ReplicateOn runs a replica on a store until the end of the test.
func (c Fixture) ReplicateOn(store scheduler.Store, queue string, slots int) {
	c.T.Helper()
	client := delivery.New(delivery.Config{Guard: guard.New(guard.Loopback)})
	ctx, stop := context.WithCancel(context.WithoutCancel(c.T.Context()))
	done := make(chan error)
	go func() {
		done <- scheduler.Run(ctx, store, scheduler.Config{
			Queues: map[string]int{queue: slots}, Client: client, Log: slog.New(slog.DiscardHandler),
			Metrics: scheduler.NewMetrics(prometheus.NewRegistry(), time.Second), Credentials: c.Secrets, Chores: c.Chores(),
			Notices: c.Notices,
		})
	}()
	c.T.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			c.T.Error(err)
		}
		client.Close()
	})
}
