package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/forecast"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// forecastOf returns the forecast of three days from the next midnight on, hour by hour. It has no slots that are due
// before the test is over.
func (c crud) forecastOf(tenant int32) jobs.Forecast {
	c.t.Helper()
	f, err := c.Jobs.Forecast(c.t.Context(), tenant, threeDays())
	must(c.t, err)
	if age := time.Since(f.AsOf); age < 0 || age > time.Minute {
		c.t.Errorf("as of %s", f.AsOf)
	}
	return f
}

func threeDays() forecast.Window {
	midnight := began.UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)
	return forecast.Window{From: midnight, To: midnight.AddDate(0, 0, 3), Step: time.Hour}
}

func TestAForecastCountsTheSlotsOfActiveJobs(t *testing.T) {
	eachExecMode(t, func(t *testing.T, c crud) {
		from := threeDays().From
		day := 24 * time.Hour
		c.create("daily", cronAt("0 3 * * *"))
		c.create("daily-too", cronAt("0 3 * * *", described("a body may say \"jitter\", too")))
		c.create("with-jitter", cronAt("0 5 * * *", func(d *domain.Definition) {
			d.Jitter = domain.DurationOf(4 * time.Hour)
		}))
		c.create("often", every(30*time.Minute), func(d *domain.Definition) {
			d.Schedule.StartsAt = domain.InstantOf(from.Add(20 * time.Hour))
			d.Schedule.EndsAt = domain.InstantOf(from.Add(21 * time.Hour))
		})
		c.create("once", at(from.Add(3*time.Hour+30*time.Minute)))
		c.create("once-later", at(from.Add(3*day)))
		c.create("ends-before", cronAt("0 3 * * *", func(d *domain.Definition) {
			d.Schedule.EndsAt = domain.InstantOf(from)
		}))
		c.create("never", never)
		c.create("paused", cronAt("0 3 * * *"))
		c.pause("paused")
		c.create("deleted", cronAt("0 3 * * *"))
		c.deleteJob("deleted")
		c.complete(c.create("completed", at(from.Add(3*time.Hour))).ID)
		f := c.forecastOf(c.tenant)
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
			f.Names[busy.Most[0].Job] != (jobs.JobName{Tenant: "default", Name: "daily"}) {
			t.Errorf("the busiest hour is %+v", busy)
		}
	})
}

// A slot that is due and not claimed yet is still to come, and one that is claimed is not.
func TestAForecastBeginsWithTheNextSlotOfEachJob(t *testing.T) {
	c := newClaimer(t)
	slot := began.Add(-20 * time.Second)
	late := c.create("late", func(d *domain.Definition) {
		d.Schedule.StartsAt = domain.InstantOf(slot.Add(-1000 * time.Hour))
	})
	c.setNext(late.ID, slot)
	w := forecast.Window{From: slot.Add(-time.Minute), To: slot.Add(150 * time.Minute), Step: time.Hour}
	for _, want := range [][]int64{{1, 1, 1}, {0, 1, 1}} {
		if want[0] == 0 {
			c.one(c.claim(100, true)) // it is late by now
		}
		f, err := c.Jobs.Forecast(t.Context(), c.tenant, w)
		if err != nil || !slices.Equal(f.Slots, want) || f.Jobs != 1 {
			t.Errorf("%v, want %v (%v)", f.Slots, want, err)
		}
	}
}

func TestAForecastSaysWhatItCannotRead(t *testing.T) {
	c := newCRUD(t)
	for name, definition := range map[string]string{
		"newer":   `{"name":"newer","schedule":{"lunar":"full moon"}}`,
		"broken":  `{"name":"broken","schedule":{"cron":"99 * * * *"}}`,
		"garbled": `[]`,
	} {
		c.exec(`UPDATE punctual.job_versions SET definition = $2 WHERE job_id = $1`,
			c.create(name, cronAt("0 3 * * *")).ID, definition)
	}
	c.exec(`DELETE FROM punctual.job_versions WHERE job_id = $1`, c.create("gone", cronAt("0 3 * * *")).ID)
	c.create("good", cronAt("0 3 * * *"))
	if f := c.forecastOf(c.tenant); f.Broken != 4 || f.Jobs != 1 || f.Total != 3 {
		t.Errorf("%d cannot be read, and %d can", f.Broken, f.Jobs)
	}
}

func TestAForecastIsATenantsOwn(t *testing.T) {
	c := newCRUD(t)
	mine := c.create("mine", cronAt("0 3 * * *"))
	other := c.newTenant("other")
	theirs := c
	theirs.tenant = other.ID
	their := theirs.create("theirs", cronAt("0 3 * * *"))
	for tenant, want := range map[int32]map[uuid.UUID]jobs.JobName{
		c.tenant: {mine.ID: {Tenant: "default", Name: "mine"}}, other.ID: {their.ID: {Tenant: "other", Name: "theirs"}},
		pg.Everybody: {
			mine.ID: {Tenant: "default", Name: "mine"}, their.ID: {Tenant: "other", Name: "theirs"},
		},
		other.ID + 1: {},
	} {
		f := c.forecastOf(tenant)
		if f.Jobs != len(want) || f.Total != int64(3*len(want)) || len(f.Names) != len(want) {
			t.Errorf("tenant %d has %d jobs: %v", tenant, f.Jobs, f.Names)
		}
		for id, name := range want {
			if f.Names[id] != name {
				t.Errorf("tenant %d: %v", tenant, f.Names)
			}
		}
	}
}

// A forecast of a caller who has gone ends, even while Postgres keeps it waiting, and returns its connection.
func TestAForecastEndsWithItsCaller(t *testing.T) {
	c := newCRUD(t)
	c.create("job")
	c.locks(`LOCK TABLE punctual.job_versions IN ACCESS EXCLUSIVE MODE`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Jobs.Forecast(ctx, c.tenant, threeDays())
		ended <- err
	}()
	c.until("the forecast to wait", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%scheduled_for < %')`)
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
	c.until("Postgres to end it, too", `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%scheduled_for < %')`)
}

// A forecast waits for no row, and no claim waits for a forecast.
func TestAForecastLocksNothing(t *testing.T) {
	c := newClaimer(t)
	c.dueNow("due")
	c.stranger(`schedules`)
	if f := c.forecastOf(c.tenant); f.Jobs != 1 {
		t.Errorf("%d jobs", f.Jobs)
	}
}
