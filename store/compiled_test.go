package store

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
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
