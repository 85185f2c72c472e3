package jobs_test

import (
	"testing"
	"time"

	"punctual/internal/pgtest"
	"punctual/internal/privatepg"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
)

// The newest runs are looked for up to tomorrow. Which day that is, the database's clock decides.
func TestAMachineWhoseClockIsDaysBehindFindsTheLastRun(t *testing.T) {
	pgtest.Exhaustive(t, "it has a Postgres with a clock of its own")
	t.Parallel()
	clock := pgtest.NewClock(t)
	server := pgtest.NewServer(t, privatepg.Config{Env: clock.Env})
	for _, ahead := range []time.Duration{72 * time.Hour, -72 * time.Hour} {
		clock.Step(ahead)
		c := OpenReplica(t, pgtest.Database(t, server))
		ran := c.Ran(c.Create("job").ID, c.Clock().Truncate(time.Second), domain.StatusSucceeded)
		last := c.Get("job").LastRun
		if last == nil || last.ID != ran || last.Job != "job" || last.Tenant != "default" || last.MaxAttempts == 0 {
			t.Errorf("with a database that is %s ahead, the last run is %+v", ahead, last)
		}
	}
}
