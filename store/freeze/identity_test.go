package freeze_test

import (
	"strings"
	"testing"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/store"
	"punctual/store/freeze"
)

func begin(c Fixture, start freeze.Start) {
	c.T.Helper()
	Must(c.T, c.Freezes.Begin(c.T.Context(), start))
}

// moved makes the database look as if it was restored from another one.
func moved(c Fixture, column string) {
	c.Exec(`UPDATE punctual.deployment SET ` + column + ` = 'other'`)
}

const identity = `SELECT count(*)
	FROM punctual.deployment
	WHERE database_name = current_database()
		AND system_identifier = (SELECT system_identifier::text FROM pg_control_system())`

func TestACopyIsFrozenUntilItIsAdopted(t *testing.T) {
	c := NewReplica(t)
	job, _ := c.DueNow("slot")
	begin(c.Fixture, freeze.Start{})
	if c.Count(`SELECT count(*) FROM punctual.deployment WHERE database_name = ''`) != 1 {
		t.Error("a replica for the API only gave a fresh database its identity")
	}
	begin(c.Fixture, freeze.Start{Dispatches: true})
	if c.Count(identity) != 1 || c.Renewed().Frozen != nil {
		t.Error("a fresh database was not adopted silently")
	}
	for _, column := range []string{"database_name", "system_identifier"} {
		moved(c.Fixture, column)
		if b := c.Claim(100, false); !b.Halted {
			t.Errorf("%s: a claim that came before any heartbeat was let through", column)
		}
		// A heartbeat notices that the database was exchanged under a running replica.
		f := c.Renewed().Frozen
		if f == nil || f.Reason != scheduler.FrozenRestored || !strings.Contains(f.Note, "other") {
			t.Fatalf("%s: %+v", column, f)
		}
		begin(c.Fixture, freeze.Start{Dispatches: true})
		if again := c.Renewed().Frozen; again == nil || *again != *f || c.Count(identity) != 0 {
			t.Errorf("%s: a second replica made %+v of %+v", column, again, f)
		}
		c.Unfreeze(freeze.Deployment)
		if c.Count(identity) != 1 || c.Renewed().Frozen != nil {
			t.Errorf("%s: unfreezing did not adopt the database", column)
		}
	}
	if run := c.One(c.Claim(100, false)); run.Job.ID != job.ID {
		t.Errorf("claimed %s", run.Job.ID)
	}
	const want = "deployment.freeze, deployment.unfreeze, deployment.freeze, deployment.unfreeze"
	if got := c.Text(`SELECT string_agg(action, ', ' ORDER BY id)
		FROM punctual.audit_log
		WHERE tenant = -1`); got != want {
		t.Errorf("the audit log has %s, want %s", got, want)
	}
}

func TestAdopting(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	plain := AsReplica(NewFixtureOn(t, dsn))
	c := AsReplica(OpenFixture(t, store.Options{DatabaseURL: dsn, Adopt: true})) // with --adopt-database
	begin(plain.Fixture, freeze.Start{Dispatches: true})
	moved(c.Fixture, "database_name")
	begin(c.Fixture, freeze.Start{})
	if c.Count(identity) != 1 || c.Renewed().Frozen != nil {
		t.Error("a replica with --adopt-database did not adopt a copy")
	}
	moved(c.Fixture, "system_identifier")
	if f := c.Renewed().Frozen; f != nil || c.Count(identity) != 1 {
		t.Errorf("a heartbeat of it left %+v", f)
	}
	// A replica with the flag lifts a freeze that another replica, without the flag, made a moment before.
	moved(c.Fixture, "system_identifier")
	begin(plain.Fixture, freeze.Start{Dispatches: true})
	if plain.Renewed().Frozen == nil {
		t.Fatal("not frozen")
	}
	begin(c.Fixture, freeze.Start{Dispatches: true})
	if f := c.Renewed().Frozen; f != nil {
		t.Errorf("still frozen: %+v", f)
	}
	// It does not lift a freeze that a person asked for, whichever freeze came first.
	moved(c.Fixture, "system_identifier")
	begin(plain.Fixture, freeze.Start{Dispatches: true})
	c.Freeze(freeze.Deployment, "asked")
	begin(c.Fixture, freeze.Start{Dispatches: true})
	if f := c.Renewed().Frozen; f == nil || f.Note != "asked" || c.Count(identity) != 1 {
		t.Errorf("%+v", f)
	}
	c.Unfreeze(freeze.Deployment)
	begin(c.Fixture, freeze.Start{Dispatches: true, Freeze: true})
	if f := c.Renewed().Frozen; f == nil || f.By != "serve --frozen" {
		t.Errorf("with --frozen: %+v", f)
	}
}

// Where Postgres does not tell its system identifier, only the name of the database tells a copy.
func TestASystemThatIsNotTold(t *testing.T) {
	c := NewReplica(t)
	if _, err := c.DB.Callers.Exec(t.Context(),
		`CREATE OR REPLACE FUNCTION punctual.system_identifier() RETURNS text LANGUAGE sql STABLE AS $$
		SELECT ''::text $$`); err != nil {
		t.Fatal(err)
	}
	begin(c.Fixture, freeze.Start{Dispatches: true})
	moved(c.Fixture, "system_identifier")
	begin(c.Fixture, freeze.Start{Dispatches: true})
	if f := c.Renewed().Frozen; f != nil {
		t.Errorf("frozen: %+v", f)
	}
	moved(c.Fixture, "database_name")
	if f := c.Renewed().Frozen; f == nil || !strings.Contains(f.Note, "(unknown)") {
		t.Errorf("%+v", f)
	}
}
