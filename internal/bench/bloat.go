package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/process"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/store"
)

// runBloat measures the claim of 100 slots while an old snapshot keeps alive the garbage of much earlier work: dead
// rows of schedules, and their entries at the due end of the index.
func runBloat(ctx context.Context, l *lab) {
	jobs := l.Sizes.Claims * admit.BatchSize
	c := l.claimer(ctx, jobs)
	defer c.db.Close()
	l.say("%d claims of %d", l.Sizes.Claims, admit.BatchSize)
	c.claims(ctx) // loads the definitions, which a replica at work has loaded too
	before := c.claims(ctx)
	old, err := connect(ctx, l.db.dsn)
	l.must(err)
	defer func() { _ = old.Close(context.WithoutCancel(ctx)) }()
	l.must(hold(ctx, old))
	l.say("%d dead rows under a held snapshot", l.Sizes.DeadRows)
	c.wear(ctx)
	under := c.claims(ctx)
	l.figure("claim of 100, no snapshot held, median", "ms", nil, before...)
	l.figure(fmt.Sprintf("claim of 100, %d dead rows, median", l.Sizes.DeadRows), "ms", atMost(10), under...)
	l.figure(fmt.Sprintf("claim of 100, %d dead rows, worst", l.Sizes.DeadRows), "ms", nil, quantile(under, 1))
}

// hold takes a snapshot that lasts until the connection closes.
func hold(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `
		BEGIN ISOLATION LEVEL REPEATABLE READ;
		SET LOCAL idle_in_transaction_session_timeout = 0;
		SELECT count(*) FROM punctual.schedules`, pgx.QueryExecModeSimpleProtocol)
	return err
}

// claimer claims as a replica does, but sends nothing.
type claimer struct {
	*lab
	db   *store.Store
	ask  scheduler.Claim
	jobs []uuid.UUID
}

func (l *lab) claimer(ctx context.Context, jobs int) *claimer {
	specs := make([]process.JobSpec, jobs)
	for i := range specs {
		specs[i] = job(fmt.Sprint("claimed-", i), daily(l.nextSecond(48*time.Hour)), "http://127.0.0.1:9/", nil)
	}
	l.createFor(ctx, query[int32](ctx, l, `SELECT id FROM punctual.tenants WHERE name = 'default'`), specs)
	c := &claimer{lab: l, jobs: query[[]uuid.UUID](ctx, l, `SELECT array_agg(id ORDER BY id) FROM punctual.jobs`)}
	var err error
	c.db, err = store.Open(ctx, store.Options{DatabaseURL: l.db.dsn, MaxConns: 4})
	l.must(err)
	c.ask.Replica = uuid.New()
	queues, err := c.db.Replicas.Register(ctx, scheduler.Replica{
		ID:      c.ask.Replica,
		Host:    "bench",
		Version: l.Version,
		Queues:  map[string]int{"default": admit.BatchSize},
	})
	if err != nil {
		c.db.Close()
		l.must(err)
	}
	c.ask.Quotas = []admit.Quota{{Queue: queues["default"], Slots: admit.BatchSize}}
	return c
}

// claims makes each job due once, 100 at a time, and returns how long each claim took, in milliseconds.
func (c *claimer) claims(ctx context.Context) (took []float64) {
	c.until(ctx, c.nextSecond(0)) // a slot that differs from the last one
	for some := range slices.Chunk(c.jobs, admit.BatchSize) {
		c.exec(ctx, `
			UPDATE punctual.schedules
			SET scheduled_for = date_trunc('second', now()), next_run_at = date_trunc('second', now()), enabled = true
			WHERE job_id = ANY($1)`, some)
		began := time.Now()
		batch, err := c.db.Claims.ClaimDue(ctx, c.ask)
		c.must(err)
		took = append(took, milliseconds(time.Since(began)))
		if len(batch.Runs) != admit.BatchSize {
			c.must(fmt.Errorf("%d runs were claimed, want %d", len(batch.Runs), admit.BatchSize))
		}
	}
	return took
}

// wearRate is the rate, in fires a second, at which the dead rows would have come about.
const wearRate = 1000

// wear moves all schedules on again and again, as firing at wearRate until now would. Each move leaves a dead row.
func (c *claimer) wear(ctx context.Context) {
	span := float64(len(c.jobs)) / wearRate // seconds in which each job fires once
	for round := (c.Sizes.DeadRows + len(c.jobs) - 1) / len(c.jobs); round > 0; round-- {
		c.exec(ctx, `
			UPDATE punctual.schedules s
			SET scheduled_for = f.at, next_run_at = f.at
			FROM (SELECT job_id, now() - make_interval(secs => $1::float8 - $2::float8 * random()) AS at
			      FROM punctual.schedules) f
			WHERE f.job_id = s.job_id`, float64(round)*span, span)
	}
	c.exec(ctx, `
		UPDATE punctual.schedules
		SET scheduled_for = now() + interval '1 day', next_run_at = now() + interval '1 day'`)
}
