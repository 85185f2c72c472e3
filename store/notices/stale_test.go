package notices_test

import (
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/jobspec"
)

// within makes a job expect a success within the given time.
func within(span string) Option {
	return func(d *jobspec.Definition) {
		if err := d.ExpectSuccessWithin.UnmarshalText([]byte(span)); err != nil {
			panic(err)
		}
	}
}

// age moves all records of the jobs into the past, so that an expected success becomes overdue.
func age(c Fixture, span string) {
	c.T.Helper()
	c.Exec(`UPDATE punctual.jobs SET created_at = created_at - $1::interval`, span)
	c.Exec(`UPDATE punctual.job_versions SET valid_from = valid_from - $1::interval`, span)
	c.Exec(`UPDATE punctual.runs SET finished_at = finished_at - $1::interval WHERE finished_at IS NOT NULL`, span)
	c.Exec(`UPDATE punctual.notified
		SET look_at = look_at - $1::interval, success_at = success_at - $1::interval,
			stale_since = stale_since - $1::interval, failing_since = failing_since - $1::interval`, span)
	c.Pass(span)
}

func TestAJobWithoutSuccessIsToldOfOnceThoughNothingRuns(t *testing.T) {
	c := NewReplica(t)
	pulse := func() bool { return c.Wants(scheduler.ChoreNotices) }
	c.Create("job", Never, within("26h"), Everything)
	c.WantHeard("") // the job is new
	if pulse() {
		t.Error("there is something to look at at once again")
	}
	age(c.Fixture, "25 h")
	c.WantHeard("")
	age(c.Fixture, "1 h")
	if !pulse() {
		t.Fatal("the heartbeat does not tell that the job is to be looked at")
	}
	a := c.WantHeard("stale 1")
	if e := Digest(t, a).Events[0]; e.Since == nil || time.Since(*e.Since) < 26*time.Hour || len(e.Runs) != 0 {
		t.Errorf("told of %+v", e)
	}
	age(c.Fixture, "26 h") // the job is still stale
	c.WantHeard("")
	c.WellAgain("job")
	c.WantHeard("recovered 1")
	c.WantHeard("")
	age(c.Fixture, "25 h")
	c.WantHeard("")
	age(c.Fixture, "2 h") // the success armed the watch again
	c.WantHeard("stale 1")
}

func TestASuccessInTimeCostsNothing(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, within("26h"), Everything)
	c.Tell()
	for range 3 {
		age(c.Fixture, "20 h")
		c.Exec(`UPDATE punctual.notified SET look_at = now() + interval '1 h'`)
		before := c.Count(`SELECT xmin::text::bigint FROM punctual.notified`)
		c.WellAgain("job")
		if after := c.Count(`SELECT xmin::text::bigint FROM punctual.notified`); after != before {
			t.Error("the success of a job that is well was written down")
		}
	}
	c.Exec(`UPDATE punctual.notified SET look_at = now()`)
	c.WantHeard("")
	c.WantCount(1, "it is not looked at when the last success is 26 hours old",
		`SELECT count(*) FROM punctual.notified WHERE look_at > now() + interval '25 h'`)
}

func TestWhenAJobIsNotStale(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(c Replica){
		"while it is paused": func(c Replica) {
			c.Create("job", HalfPast, within("26h"), Everything)
			c.Pause("job")
			age(c.Fixture, "60 h")
		},
		"soon after it was resumed": func(c Replica) {
			c.Create("job", Never, within("26h"), Everything)
			c.Pause("job")
			age(c.Fixture, "60 h")
			c.Resumed("job")
			age(c.Fixture, "25 h")
		},
		"without anybody to be told": func(c Replica) {
			c.Create("job", Never, within("26h"))
			age(c.Fixture, "60 h")
		},
		"once it was deleted": func(c Replica) {
			c.Create("job", Never, within("26h"), Everything)
			c.DeleteJob("job")
			age(c.Fixture, "60 h")
		},
		"when nothing is expected any more": func(c Replica) {
			c.Create("job", Never, within("26h"), Everything)
			c.Edit("job", func(d *jobspec.Definition) { d.ExpectSuccessWithin = jobspec.Duration{} })
			age(c.Fixture, "60 h")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			arrange(c)
			c.WantHeard("")
			c.WantHeard("")
		})
	}
}

// A success that was being committed while the job was found stale is noticed a minute later.
func TestASuccessMeanwhileIsFound(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, within("26h"), Everything)
	a := c.Begun("job")
	age(c.Fixture, "27 h")
	c.WantHeard("stale 1")
	c.WantCount(1, "jobs are looked at once more", `SELECT count(*) FROM punctual.notified WHERE look_at > now()`)
	c.Finish(Succeeded(a))
	// The rows now look as if the transaction of the success had not seen that the job was marked stale.
	c.Exec(`DELETE FROM punctual.notices`)
	c.Exec(`UPDATE punctual.notified SET stale_since = now() - interval '27 h', success_at = NULL, look_at = now()`)
	c.WantHeard("recovered 1")
	c.WantCount(0, "the job is stale still", `SELECT count(*) FROM punctual.notified WHERE stale_since IS NOT NULL`)
}
