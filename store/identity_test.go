package store

import (
	"strings"
	"testing"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/store/freeze"
)

func (c crud) begin(start freeze.Start) {
	c.t.Helper()
	must(c.t, c.Freezes.Begin(c.t.Context(), start))
}

// moved makes the database look as if it was restored from another one.
func (c crud) moved(column string) { c.exec(`UPDATE punctual.deployment SET ` + column + ` = 'other'`) }

const identity = `SELECT count(*)
	FROM punctual.deployment
	WHERE database_name = current_database()
		AND system_identifier = (SELECT system_identifier::text FROM pg_control_system())`

func TestACopyIsFrozenUntilItIsAdopted(t *testing.T) {
	c := newClaimer(t)
	job, _ := c.dueNow("slot")
	c.begin(freeze.Start{})
	if c.count(`SELECT count(*) FROM punctual.deployment WHERE database_name = ''`) != 1 {
		t.Error("a replica for the API only gave a fresh database its identity")
	}
	c.begin(freeze.Start{Dispatches: true})
	if c.count(identity) != 1 || c.renewed().Frozen != nil {
		t.Error("a fresh database was not adopted silently")
	}
	for _, column := range []string{"database_name", "system_identifier"} {
		c.moved(column)
		if b := c.claim(100, false); !b.Halted {
			t.Errorf("%s: a claim that came before any heartbeat was let through", column)
		}
		// A heartbeat notices that the database was exchanged under a running replica.
		f := c.renewed().Frozen
		if f == nil || f.Reason != scheduler.FrozenRestored || !strings.Contains(f.Note, "other") {
			t.Fatalf("%s: %+v", column, f)
		}
		c.begin(freeze.Start{Dispatches: true})
		if again := c.renewed().Frozen; again == nil || *again != *f || c.count(identity) != 0 {
			t.Errorf("%s: a second replica made %+v of %+v", column, again, f)
		}
		c.unfreeze(freeze.Deployment)
		if c.count(identity) != 1 || c.renewed().Frozen != nil {
			t.Errorf("%s: unfreezing did not adopt the database", column)
		}
	}
	if run := c.one(c.claim(100, false)); run.Job.ID != job.ID {
		t.Errorf("claimed %s", run.Job.ID)
	}
	const want = "deployment.freeze, deployment.unfreeze, deployment.freeze, deployment.unfreeze"
	if got := c.text(`SELECT string_agg(action, ', ' ORDER BY id)
		FROM punctual.audit_log
		WHERE tenant = -1`); got != want {
		t.Errorf("the audit log has %s, want %s", got, want)
	}
}

func TestAdopting(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	plain := asClaimer(newCRUDOn(t, dsn))
	c := asClaimer(openCRUD(t, Options{DatabaseURL: dsn, Adopt: true})) // with --adopt-database
	plain.begin(freeze.Start{Dispatches: true})
	c.moved("database_name")
	c.begin(freeze.Start{})
	if c.count(identity) != 1 || c.renewed().Frozen != nil {
		t.Error("a replica with --adopt-database did not adopt a copy")
	}
	c.moved("system_identifier")
	if f := c.renewed().Frozen; f != nil || c.count(identity) != 1 {
		t.Errorf("a heartbeat of it left %+v", f)
	}
	// A replica with the flag lifts a freeze that another replica, without the flag, made a moment before.
	c.moved("system_identifier")
	plain.begin(freeze.Start{Dispatches: true})
	if plain.renewed().Frozen == nil {
		t.Fatal("not frozen")
	}
	c.begin(freeze.Start{Dispatches: true})
	if f := c.renewed().Frozen; f != nil {
		t.Errorf("still frozen: %+v", f)
	}
	// It does not lift a freeze that a person asked for, whichever freeze came first.
	c.moved("system_identifier")
	plain.begin(freeze.Start{Dispatches: true})
	c.freeze(freeze.Deployment, "asked")
	c.begin(freeze.Start{Dispatches: true})
	if f := c.renewed().Frozen; f == nil || f.Note != "asked" || c.count(identity) != 1 {
		t.Errorf("%+v", f)
	}
	c.unfreeze(freeze.Deployment)
	c.begin(freeze.Start{Dispatches: true, Freeze: true})
	if f := c.renewed().Frozen; f == nil || f.By != "serve --frozen" {
		t.Errorf("with --frozen: %+v", f)
	}
}

// Where Postgres does not tell its system identifier, only the name of the database tells a copy.
func TestASystemThatIsNotTold(t *testing.T) {
	c := newClaimer(t)
	if _, err := c.DB.Callers.Exec(t.Context(),
		`CREATE OR REPLACE FUNCTION punctual.system_identifier() RETURNS text LANGUAGE sql STABLE AS $$
		SELECT ''::text $$`); err != nil {
		t.Fatal(err)
	}
	c.begin(freeze.Start{Dispatches: true})
	c.moved("system_identifier")
	c.begin(freeze.Start{Dispatches: true})
	if f := c.renewed().Frozen; f != nil {
		t.Errorf("frozen: %+v", f)
	}
	c.moved("database_name")
	if f := c.renewed().Frozen; f == nil || !strings.Contains(f.Note, "(unknown)") {
		t.Errorf("%+v", f)
	}
}
