package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/claim"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Postgres compiles a plan that looks expensive. That takes half a second of a processor, with rows locked. Plans that
// look expensive here do little work: a day that was never analysed misleads the planner.
func TestNoStatementIsCompiled(t *testing.T) {
	direct := pgtest.DSN(t)
	for name, dsn := range map[string]string{
		"direct":    direct,
		"pgbouncer": pgtest.PgBouncer(t, pgtest.Server(t), pgtest.DSN(t), "default_pool_size = 2"),
	} {
		t.Run(name, func(t *testing.T) {
			c := NewFixtureOn(t, dsn)
			c.Exec(`CREATE FUNCTION punctual.refuse_compiling() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN IF current_setting('jit')::boolean THEN RAISE EXCEPTION 'with jit'; END IF; RETURN NULL; END $$`)
			for _, table := range []string{"jobs", "schedules", "runs", "ready"} {
				c.Exec(`CREATE TRIGGER refuse_compiling BEFORE INSERT OR UPDATE ON punctual.` + table +
					` FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_compiling()`)
			}
			c.Create("job", Every(time.Hour))
			c.Edit("job", Every(time.Minute))
			if _, err := c.TryTrigger("job"); err != nil {
				t.Error(err)
			}
			var jit string
			err := c.DB.Callers.Reader(c.Tenant).QueryRow(t.Context(), `SELECT current_setting('jit')`).Scan(&jit)
			if err != nil || jit != "off" {
				t.Errorf("a read with jit %s, %v", jit, err)
			}
			if err := c.DB.Callers.InTx(t.Context(), c.Tenant, func(tx *pg.Tx) error {
				return tx.QueryRow(t.Context(), `SELECT current_setting('jit')`).Scan(&jit)
			}); err != nil || jit != "off" {
				t.Errorf("a transaction with jit %s, %v", jit, err)
			}
		})
	}
}

// namedPlans returns how often the connections' prepared statements ran with a custom plan, and how often with a
// generic one.
func namedPlans(t *testing.T, s *store.Store) (custom, generic int) {
	t.Helper()
	for _, conn := range s.DB.Callers.AcquireAllIdle(t.Context()) {
		defer conn.Release()
		var c, g int
		if err := conn.QueryRow(t.Context(), `SELECT coalesce(sum(custom_plans), 0), coalesce(sum(generic_plans), 0)
			FROM pg_prepared_statements`).Scan(&c, &g); err != nil {
			t.Fatal(err)
		}
		custom, generic = custom+c, generic+g
	}
	return custom, generic
}

// Planning a query over all the days of runs costs thirty times as much as running it.
func TestReadingAJobIsPlannedOnce(t *testing.T) {
	t.Parallel()
	// One transaction reads a job by its name that has no run of late: it begins, and reads the job, its last run and what
	// triggers it. For a job that may have run before, another begins, and reads which days have runs. Each connection
	// plans each statement five times before it keeps a plan.
	for age, statements := range map[int]int{0: 4, 30: 6} {
		t.Run(fmt.Sprint(age, " days old"), func(t *testing.T) {
			c := NewFixture(t)
			job := c.Create("job")
			c.Exec(`UPDATE punctual.jobs SET created_at = now() - $1 * interval '1 day'`, age)
			const reads = 200
			for range reads {
				c.Get("job")
			}
			if _, _, err := c.Jobs.ListJobs(t.Context(), c.Tenant, jobs.Filter{}); err != nil {
				t.Fatal(err)
			}
			custom, generic := namedPlans(t, c.Store)
			if custom > 6*8*6 || custom+generic < statements*reads || custom+generic > (statements+1)*reads {
				t.Errorf("%d plans were made for values and %d uses of kept ones, in %d reads of job %s",
					custom, generic, reads, job.ID)
			}
		})
	}
}

// A connection plans what claims and finishes send once. Left to Postgres, five plans were made while the tables were
// small and looked cheap. Once they had grown and been analysed, a lasting plan looked dearer than these.
func TestClaimsAndFinishesArePlannedOnceHoweverTheTablesGrow(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	t.Parallel()
	c := OpenReplica(t, pgtest.Clone(t))
	work := func() {
		for range 10 {
			// However long it took to get here, slots that are due count as due, and not as late.
			c.Exec(`UPDATE punctual.schedules SET next_run_at = now() WHERE next_run_at < now()`)
			c.ClaimReady(100)
			c.Exec(`UPDATE punctual.schedules SET next_run_at = now() WHERE next_run_at <= now()`) // and none is late
			batch := c.Claim(20, false)
			if len(batch.Runs) != 20 {
				t.Fatalf("%d runs were claimed, want 20", len(batch.Runs))
			}
			var outcomes []domain.Outcome
			for _, a := range batch.Runs {
				o := Unsent(a, domain.Succeed)
				o.StartedAt = o.FinishedAt
				outcomes = append(outcomes, o)
			}
			if _, err := c.Claims.Finish(t.Context(), outcomes, []uuid.UUID{batch.Runs[0].Lease.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Many(300, "early", 0, Every(time.Hour))
	c.Many(200, "early-once", 0, At(time.Now().Add(time.Hour)))
	work()
	c.Many(20000, "resting", -time.Hour, Every(time.Hour))
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), gen_random_uuid(), now() + interval '1 hour', 1, $1::smallint * 4 + 1
		FROM generate_series(1, 20000)`, c.Queue)
	c.Exec(`ANALYZE`)
	work()
	const often = `FROM pg_prepared_statements WHERE generic_plans + custom_plans >= 10`
	if n := c.Count(`SELECT count(*) ` + often); n < 11 {
		t.Errorf("only %d statements were used in each claim", n)
	}
	// A claim of jobs that are not known yet is planned anew, as their gates may lead to runs. The first one here is.
	planned, err := pg.All(t.Context(), c.DB.Callers, pgx.RowTo[string], `SELECT left(statement, 90) || ': ' || custom_plans `+
		often+` AND custom_plans > 1 AND statement NOT LIKE 'SELECT set_config%'`)
	Must(t, err)
	if len(planned) > 0 {
		t.Errorf("planned more than once: %q", planned)
	}
}

// A claim's plan is kept whatever its arguments are (see above), so it must be as good as one that is made for them.
func TestThePlanOfAClaimDoesNotDependOnItsArguments(t *testing.T) {
	c := ReplicaOnClone(t).Fixture
	c.Exec(`INSERT INTO punctual.schedules (job_id, scheduled_for, next_run_at, tenant, version, lane, enabled)
		SELECT gen_random_uuid(), now(), now() + i * interval '1 s', 1 + i % 50, 1, 5, true FROM generate_series(1, 20000) i`)
	c.Exec(`INSERT INTO punctual.ready (run_id, job_id, due_at, tenant, lane)
		SELECT gen_random_uuid(), gen_random_uuid(), now() + i * interval '1 s', 1 + i % 50, 4 + i % 4
		FROM generate_series(1, 20000) i`)
	c.Exec(`ANALYZE punctual.schedules, punctual.ready`)
	conn, err := c.DB.Callers.Acquire(t.Context())
	Must(t, err)
	defer conn.Release()
	cost := func(sql, arguments, mode string) (total float64) {
		t.Helper()
		for _, statement := range []string{`SET plan_cache_mode = ` + mode, `DEALLOCATE ALL`, `PREPARE claim AS ` + sql} {
			if _, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
		}
		var plans []struct {
			Plan struct {
				Total float64 `json:"Total Cost"`
			}
		}
		err := conn.QueryRow(t.Context(), `EXPLAIN (FORMAT JSON) EXECUTE claim (`+arguments+`)`,
			pgx.QueryExecModeSimpleProtocol).Scan(&plans)
		Must(t, err)
		return plans[0].Plan.Total
	}
	for _, form := range []struct {
		name, arguments string
		claim           scheduler.Claim
	}{
		{"of any tenant", `'{1}', '{100}', NULL, '0 s', '{}', '{}'`, scheduler.Claim{}},
		{"around a tenant", `'{1}', '{100}', '1 min', '0 s', '{7}', '{}'`, scheduler.Claim{Except: []int32{7}}},
		{
			"by tenants", `'{1,1}', '{8,8}', NULL, '0 s', '{1,2}', '{}'`,
			scheduler.Claim{Quotas: []admit.Quota{{Queue: 1, Tenant: 1, Slots: 8}}},
		},
	} {
		for _, form.claim.Work = range []domain.Work{domain.WorkReady, domain.WorkOrdered, domain.WorkDue} {
			sql, _ := claim.Locking(form.claim)
			arguments := form.arguments + `, '{NULL}'`
			if form.claim.Work == domain.WorkDue {
				arguments = form.arguments + `, false`
			}
			lasting := cost(sql, arguments, "force_generic_plan")
			if atHand := cost(sql, arguments, "force_custom_plan"); lasting != atHand {
				t.Errorf("a claim of work of kind %d %s: a lasting plan costs %.2f, one for its arguments %.2f",
					form.claim.Work, form.name, lasting, atHand)
			}
		}
	}
}

func TestBehindAPoolerNoNamesAreKept(t *testing.T) {
	t.Parallel()
	s := OpenStore(t,
		store.Options{DatabaseURL: pgtest.PgBouncer(t, pgtest.Server(t), pgtest.DSN(t), "default_pool_size = 2")})
	for range 20 {
		if _, err := jobs.Read(t.Context(), s.DB.Callers, 1, uuid.New()); err == nil {
			t.Fatal("a job that nobody made was found")
		}
	}
	if custom, generic := namedPlans(t, s); custom+generic != 0 {
		t.Errorf("named statements were used %d times", custom+generic)
	}
}
