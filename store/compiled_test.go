package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
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
			c := newCRUDOn(t, dsn)
			c.exec(`CREATE FUNCTION punctual.refuse_compiling() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN IF current_setting('jit')::boolean THEN RAISE EXCEPTION 'with jit'; END IF; RETURN NULL; END $$`)
			for _, table := range []string{"jobs", "schedules", "runs", "ready"} {
				c.exec(`CREATE TRIGGER refuse_compiling BEFORE INSERT OR UPDATE ON punctual.` + table +
					` FOR EACH STATEMENT EXECUTE FUNCTION punctual.refuse_compiling()`)
			}
			c.create("job", every(time.Hour))
			c.edit("job", every(time.Minute))
			if _, err := c.tryTrigger("job"); err != nil {
				t.Error(err)
			}
			var jit string
			err := c.db.Reader(t.Context(), c.tenant).QueryRow(t.Context(), `SELECT current_setting('jit')`).Scan(&jit)
			if err != nil || jit != "off" {
				t.Errorf("a read with jit %s, %v", jit, err)
			}
			if err := c.db.InTx(t.Context(), c.tenant, func(tx *pg.Tx) error {
				return tx.QueryRow(t.Context(), `SELECT current_setting('jit')`).Scan(&jit)
			}); err != nil || jit != "off" {
				t.Errorf("a transaction with jit %s, %v", jit, err)
			}
		})
	}
}

// namedPlans returns how often the connections' prepared statements ran with a custom plan, and how often with a
// generic one.
func namedPlans(t *testing.T, s *Store) (custom, generic int) {
	t.Helper()
	for _, conn := range s.db.Pool().AcquireAllIdle(t.Context()) {
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
	c := newCRUD(t)
	job := c.create("job")
	const reads = 200
	for range reads {
		c.get("job")
	}
	if _, _, err := c.ListJobs(t.Context(), c.tenant, jobs.Filter{}); err != nil {
		t.Fatal(err)
	}
	// Two statements read a job by its name. Each connection plans each of them five times before it keeps a plan.
	custom, generic := namedPlans(t, c.Store)
	if custom > 2*8*6 || generic < 2*reads-custom {
		t.Errorf("%d plans were made for values and %d uses of kept ones, in %d reads of job %s",
			custom, generic, reads, job.ID)
	}
}

func TestBehindAPoolerNoNamesAreKept(t *testing.T) {
	t.Parallel()
	s := openStore(t,
		Options{DatabaseURL: pgtest.PgBouncer(t, pgtest.Server(t), pgtest.DSN(t), "default_pool_size = 2")})
	for range 20 {
		if _, err := jobs.Read(t.Context(), s.db.Pool(), 1, uuid.New()); err == nil {
			t.Fatal("a job that nobody made was found")
		}
	}
	if custom, generic := namedPlans(t, s); custom+generic != 0 {
		t.Errorf("named statements were used %d times", custom+generic)
	}
}
