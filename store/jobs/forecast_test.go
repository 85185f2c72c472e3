package jobs_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/forecast"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// forecastOf returns the forecast of three days from the next midnight on, hour by hour. It has no slots that are due
// before the test is over.
func forecastOf(c Fixture, tenant int32) jobs.Forecast {
	c.T.Helper()
	f, err := c.Jobs.Forecast(c.T.Context(), tenant, threeDays())
	Must(c.T, err)
	if age := time.Since(f.AsOf); age < 0 || age > time.Minute {
		c.T.Errorf("as of %s", f.AsOf)
	}
	return f
}

func threeDays() forecast.Window {
	midnight := Began.UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
	return forecast.Window{From: midnight, To: midnight.AddDate(0, 0, 3), Step: time.Hour}
}

func TestAForecastCountsTheSlotsOfActiveJobs(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(t *testing.T, c Fixture) {
		from := threeDays().From
		day := 24 * time.Hour
		c.Create("daily", cronAt("0 3 * * *"))
		c.Create("daily-too", cronAt("0 3 * * *", Described("a body may say \"jitter\", too")))
		c.Create("with-jitter", cronAt("0 5 * * *", func(d *jobspec.Definition) {
			d.Jitter = jobspec.DurationOf(4 * time.Hour)
		}))
		c.Create("often", Every(30*time.Minute), func(d *jobspec.Definition) {
			d.Schedule.StartsAt = jobspec.InstantOf(from.Add(20 * time.Hour))
			d.Schedule.EndsAt = jobspec.InstantOf(from.Add(21 * time.Hour))
		})
		c.Create("once", At(from.Add(3*time.Hour+30*time.Minute)))
		c.Create("once-later", At(from.Add(3*day)))
		c.Create("ends-before", cronAt("0 3 * * *", func(d *jobspec.Definition) {
			d.Schedule.EndsAt = jobspec.InstantOf(from)
		}))
		c.Create("never", Never)
		c.Create("paused", cronAt("0 3 * * *"))
		c.Pause("paused")
		c.Create("deleted", cronAt("0 3 * * *"))
		c.DeleteJob("deleted")
		c.Complete(c.Create("completed", At(from.Add(3*time.Hour))).ID)
		f := forecastOf(c, c.Tenant)
		want := map[int]int64{3: 3, 5: 1, 20: 2, 21: 1, 27: 2, 29: 1, 51: 2, 53: 1}
		for hour, n := range f.Slots {
			if n != want[hour] {
				t.Errorf("hour %d has %d slots, want %d", hour, n, want[hour])
			}
		}
		if f.Total != 13 || f.Jobs != 5 || f.Broken != 0 || len(f.Slots) != 72 {
			t.Errorf("%d slots of %d jobs", f.Total, f.Jobs)
		}
		if !slices.Equal(f.Starts[3:10], []float64{3, 0, .25, .25, .25, .25, 0}) {
			t.Errorf("the starts are %v", f.Starts)
		}
		busy := f.Busiest[0]
		if !busy.At.Equal(from.Add(3*time.Hour)) || busy.Jobs != 3 || len(busy.Most) != 3 ||
			busy.Most[0].Tenant != "default" || busy.Most[0].Name != "daily" {
			t.Errorf("the busiest hour is %+v", busy)
		}
	})
}

// A slot that is due and not claimed yet is still to come, and one that is claimed is not.
func TestAForecastBeginsWithTheNextSlotOfEachJob(t *testing.T) {
	c := NewReplica(t)
	slot := Began.Add(-20 * time.Second)
	late := c.Create("late", func(d *jobspec.Definition) {
		d.Schedule.StartsAt = jobspec.InstantOf(slot.Add(-1000 * time.Hour))
	})
	c.SetNext(late.ID, slot)
	w := forecast.Window{From: slot.Add(-time.Minute), To: slot.Add(150 * time.Minute), Step: time.Hour}
	for _, want := range [][]int64{{1, 1, 1}, {0, 1, 1}} {
		if want[0] == 0 {
			c.One(c.Claim(100, true)) // it is late by now
		}
		f, err := c.Jobs.Forecast(t.Context(), c.Tenant, w)
		if err != nil || !slices.Equal(f.Slots, want) || f.Jobs != 1 {
			t.Errorf("%v, want %v (%v)", f.Slots, want, err)
		}
	}
}

func TestAForecastSaysWhatItCannotRead(t *testing.T) {
	c := NewFixture(t)
	for name, definition := range map[string]string{
		"newer":   `{"name":"newer","schedule":{"lunar":"full moon"}}`,
		"broken":  `{"name":"broken","schedule":{"cron":"99 * * * *"}}`,
		"garbled": `[]`,
	} {
		c.Exec(`UPDATE punctual.job_versions SET definition = $2 WHERE job_id = $1`,
			c.Create(name, cronAt("0 3 * * *")).ID, definition)
	}
	c.Exec(`DELETE FROM punctual.job_versions WHERE job_id = $1`, c.Create("gone", cronAt("0 3 * * *")).ID)
	c.Create("good", cronAt("0 3 * * *"))
	if f := forecastOf(c, c.Tenant); f.Broken != 4 || f.Jobs != 1 || f.Total != 3 {
		t.Errorf("%d cannot be read, and %d can", f.Broken, f.Jobs)
	}
}

func TestAForecastIsATenantsOwn(t *testing.T) {
	c := NewFixture(t)
	mine := c.Create("mine", cronAt("0 3 * * *"))
	other := c.NewTenant("other")
	theirs := c
	theirs.Tenant = other.ID
	their := theirs.Create("theirs", cronAt("0 3 * * *"))
	for tenant, want := range map[int32]map[uuid.UUID]string{
		c.Tenant: {mine.ID: "mine of default"}, other.ID: {their.ID: "theirs of other"},
		pg.Everybody: {mine.ID: "mine of default", their.ID: "theirs of other"}, other.ID + 1: {},
	} {
		f := forecastOf(c, tenant)
		got := map[uuid.UUID]string{}
		for _, busy := range f.Busiest {
			for _, job := range busy.Most {
				got[job.ID] = job.Name + " of " + job.Tenant
			}
		}
		if f.Jobs != len(want) || f.Total != int64(3*len(want)) || !maps.Equal(got, want) {
			t.Errorf("tenant %d has %d jobs: %v", tenant, f.Jobs, got)
		}
	}
}

// The forecast of the deployment counts the dated runs of all tenants.
func TestTheForecastOfAllTenantsCountsTheirDatedRuns(t *testing.T) {
	c := NewFixture(t)
	c.Create("mine", Never)
	theirs := c
	theirs.Tenant = c.NewTenant("other").ID
	theirs.Create("theirs", Never)
	for _, of := range []Fixture{c, theirs} {
		job := "mine"
		if of.Tenant != c.Tenant {
			job = "theirs"
		}
		at := threeDays().From.Add(time.Hour)
		of.Date(job, jobs.DateRequest{Key: "key", At: &at})
	}
	for tenant, want := range map[int32]int64{c.Tenant: 1, theirs.Tenant: 1, pg.Everybody: 2} {
		if f := forecastOf(c, tenant); f.Total != want {
			t.Errorf("tenant %d has %d runs, want %d", tenant, f.Total, want)
		}
	}
}

// A forecast of a caller who has gone ends, even while Postgres keeps it waiting, and returns its connection.
func TestAForecastEndsWithItsCaller(t *testing.T) {
	c := NewFixture(t)
	c.Create("job")
	c.Locks(`LOCK TABLE punctual.job_versions IN ACCESS EXCLUSIVE MODE`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Jobs.Forecast(ctx, c.Tenant, threeDays())
		ended <- err
	}()
	c.Until("the forecast to wait", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%scheduled_for < %')`)
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(Patience):
		t.Fatal("it goes on")
	}
	c.Until("Postgres to end it, too", `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%scheduled_for < %')`)
}

// A forecast waits for no row, and no claim waits for a forecast.
func TestAForecastLocksNothing(t *testing.T) {
	c := NewReplica(t)
	c.DueNow("due")
	c.Stranger(`schedules`)
	if f := forecastOf(c.Fixture, c.Tenant); f.Jobs != 1 {
		t.Errorf("%d jobs", f.Jobs)
	}
}

func cronAt(expression string, options ...Option) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Cron: expression}
		for _, o := range options {
			o(d)
		}
	}
}
