package store_test

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/migrations"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// Whatever defaults a role and a database have, slots are claimed and finished, chores are done, days are made and
// retired, and two transactions that meet wait for each other and go on.
func TestTheStoreWorksWhateverTheDatabasesDefaults(t *testing.T) {
	t.Parallel()
	dsn, super := pgtest.Zoo(t)
	if _, err := migrations.Up(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	c := AsReplica(OpenFixture(t,
		store.Options{DatabaseURL: dsn, Master: pgtest.Master(t), MaxConns: pg.LeastConns, Replica: true}))
	Must(t, c.CheckTenants(t.Context()))
	if on, err := c.Backstop(t.Context()); !on || err != nil {
		t.Errorf("row-level security is in force: %v, %v", on, err)
	}
	job := c.Create("job", Every(time.Hour))
	c.SlotAgo(job.ID, 0)
	batch := c.Claim(10, false)
	if len(batch.Runs) != 1 {
		t.Fatalf("%d runs claimed", len(batch.Runs))
	}
	_, err := c.Claims.Finish(t.Context(), []domain.Outcome{Unsent(batch.Runs[0], domain.Succeed)}, nil)
	Must(t, err)

	tx, err := c.DB.Callers.Begin(t.Context())
	Must(t, err)
	Must(t, pg.Exec(t.Context(), tx, `UPDATE punctual.schedules SET enabled = enabled`))
	paused := make(chan error, 1)
	go func() {
		_, err := c.Jobs.PauseJob(t.Context(), c.Tenant, "job", "", nil)
		paused <- err
	}()
	c.Until("a change to wait for the row", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	Must(t, tx.Commit(t.Context()))
	Must(t, <-paused)

	c.Exec(`SELECT punctual.create_partitions('2020-01-01', '2020-01-02')`)
	ctx := t.Context()
	_, err = c.Chore(ctx, "maintenance")
	Must(t, err)
	tidyUp(c.Fixture)
	if n := c.Count(`SELECT count(*) FROM pg_class WHERE relname = 'runs_20200101'`); n != 0 {
		t.Error("an old day was not removed")
	}
	for name, chore := range map[string]func() error{
		"resume":  func() error { _, _, err := c.Jobs.ResumeDue(ctx); return err },
		"operate": func() error { _, _, err := c.Letters.Operate(ctx); return err },
		"notify":  func() error { _, err := c.Notices.Collect(ctx); return err },
		"list":    func() error { _, _, err := c.Jobs.ListJobs(ctx, c.Tenant, jobs.Filter{}); return err },
	} {
		if err := chore(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	grantsInTheZoo(c.Fixture, super)
}
