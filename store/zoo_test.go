package store

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/migrations"
	"punctual/scheduler/domain"
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
	c := asClaimer(openCRUD(t,
		Options{DatabaseURL: dsn, Master: pgtest.Master(t), MaxConns: pg.LeastConns, Replica: true}))
	must(t, c.CheckTenants(t.Context()))
	if on, err := c.Backstop(t.Context()); !on || err != nil {
		t.Errorf("row-level security is in force: %v, %v", on, err)
	}
	job := c.create("job", every(time.Hour))
	c.slotAgo(job.ID, 0)
	batch := c.claim(10, false)
	if len(batch.Runs) != 1 {
		t.Fatalf("%d runs claimed", len(batch.Runs))
	}
	_, err := c.Claims.Finish(t.Context(), []domain.Outcome{unsent(batch.Runs[0], domain.Succeed)}, nil)
	must(t, err)

	tx, err := c.DB.Callers.Begin(t.Context())
	must(t, err)
	must(t, pg.Exec(t.Context(), tx, `UPDATE punctual.schedules SET enabled = enabled`))
	paused := make(chan error, 1)
	go func() {
		_, err := c.Jobs.PauseJob(t.Context(), c.tenant, "job", "", nil)
		paused <- err
	}()
	c.until("a change to wait for the row", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	must(t, tx.Commit(t.Context()))
	must(t, <-paused)

	c.exec(`SELECT punctual.create_partitions('2020-01-01', '2020-01-02')`)
	ctx := t.Context()
	_, err = c.chore(ctx, "maintenance")
	must(t, err)
	c.tidyUp()
	if n := c.count(`SELECT count(*) FROM pg_class WHERE relname = 'runs_20200101'`); n != 0 {
		t.Error("an old day was not removed")
	}
	for name, chore := range map[string]func() error{
		"resume":  func() error { _, _, err := c.Jobs.ResumeDue(ctx); return err },
		"operate": func() error { _, _, err := c.Letters.Operate(ctx); return err },
		"notify":  func() error { _, err := c.Notices.Notify(ctx); return err },
		"list":    func() error { _, _, err := c.Jobs.ListJobs(ctx, c.tenant, jobs.Filter{}); return err },
	} {
		if err := chore(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.grantsInTheZoo(super)
}
