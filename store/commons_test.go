package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/store/pg"
)

// Every role of a database may take any number as an advisory lock, and keep it. So no work may wait for one.
func TestNoStatementWaitsForAnAdvisoryLock(t *testing.T) {
	c := NewFixture(t)
	if found := c.Text(`SELECT coalesce(string_agg(p.proname, ' '), '') FROM pg_proc p
		WHERE p.pronamespace = 'punctual'::regnamespace AND p.prosrc ~ 'advisory_(xact_)?lock'`); found != "" {
		t.Errorf("functions of the schema: %s", found)
	}
	Must(t, filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "advisory_lock") || strings.Contains(string(text), "advisory_xact_lock") {
			t.Errorf("%s has one", path)
		}
		return err
	}))
}

// A role without any right holds the advisory locks that the schema once had. All goes on.
func TestARoleWithoutRightsHoldsUpNothing(t *testing.T) {
	c := NewReplica(t)
	_, app := c.App()
	c.Exec(`UPDATE punctual.tenants SET reports_since = reports_since - interval '1 min'`)
	c.Renewed()
	a := c.Manual("job")
	Must(t, pg.Exec(t.Context(), app, `SET statement_timeout = '30s'`))
	_, stranger := c.Login("stranger")
	for _, name := range []string{"create_partitions", "counted_hours", "counted_days"} {
		Must(t, pg.Exec(t.Context(), stranger, `SELECT pg_advisory_lock(hashtext('punctual.' || $1))`, name))
	}
	Must(t, pg.Exec(t.Context(), stranger,
		`SELECT pg_advisory_lock(hashtextextended('punctual.reports ' || $1::text, 0))`, a.RunID.String()))
	WantRefused(t, stranger, "42501", `SELECT FROM punctual.locks FOR SHARE`)
	WantRefused(t, app, "42501", `SELECT FROM punctual.locks FOR SHARE`)

	Ask[uuid.UUID](t, app, `SELECT shop_jobs.trigger('job')`)
	Must(t, pg.Exec(t.Context(), app, `SELECT shop_jobs.complete($1, $2)`, a.RunID, a.Fence))
	c.Finish(Failed(a))
	if got := c.Run(a.RunID).Status; got != domain.StatusSucceeded {
		t.Errorf("the run is %s", got)
	}
	c.Exec(`SELECT punctual.create_partitions('2030-01-01', '2030-01-01'), punctual.restore_partitions('2030-01-02'),
		punctual.begin_changes('{1}'), punctual.end_changes()`)
	for name, count := range map[string]func() error{
		"hours": func() error { _, _, err := c.Overview.CountHours(t.Context()); return err },
		"days":  func() error { _, _, err := c.Overview.CountUsage(t.Context()); return err },
	} {
		if err := count(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.WantCount(1, "hour that is counted", `SELECT least(1, count(*)) FROM punctual.counted_hours WHERE counted_at > '-infinity'`)
}
