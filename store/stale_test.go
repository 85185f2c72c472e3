package store

import (
	"testing"
	"time"

	"punctual/scheduler"
	"punctual/scheduler/domain"
)

// within makes a job expect a success within the given time.
func within(span string) option {
	return func(d *domain.Definition) {
		if err := d.ExpectSuccessWithin.UnmarshalText([]byte(span)); err != nil {
			panic(err)
		}
	}
}

// age moves all records of the jobs into the past, so that an expected success becomes overdue.
func (c crud) age(span string) {
	c.t.Helper()
	c.exec(`UPDATE punctual.jobs SET created_at = created_at - $1::interval`, span)
	c.exec(`UPDATE punctual.job_versions SET valid_from = valid_from - $1::interval`, span)
	c.exec(`UPDATE punctual.runs SET finished_at = finished_at - $1::interval WHERE finished_at IS NOT NULL`, span)
	c.exec(`UPDATE punctual.notified
		SET look_at = look_at - $1::interval, success_at = success_at - $1::interval,
			stale_since = stale_since - $1::interval, failing_since = failing_since - $1::interval`, span)
	c.pass(span)
}

func TestAJobWithoutSuccessIsToldOfOnceThoughNothingRuns(t *testing.T) {
	c := newClaimer(t)
	pulse := func() bool { return c.wants(scheduler.ChoreNotices) }
	c.create("job", never, within("26h"), everything)
	c.wantHeard("") // the job is new
	if pulse() {
		t.Error("there is something to look at at once again")
	}
	c.age("25 h")
	c.wantHeard("")
	c.age("1 h")
	if !pulse() {
		t.Fatal("the heartbeat does not tell that the job is to be looked at")
	}
	a := c.wantHeard("stale 1")
	if e := news(t, a).Events[0]; e.Since == nil || time.Since(*e.Since) < 26*time.Hour || len(e.Runs) != 0 {
		t.Errorf("told of %+v", e)
	}
	c.age("26 h") // the job is still stale
	c.wantHeard("")
	c.wellAgain("job")
	c.wantHeard("recovered 1")
	c.wantHeard("")
	c.age("25 h")
	c.wantHeard("")
	c.age("2 h") // the success armed the watch again
	c.wantHeard("stale 1")
}

func TestASuccessInTimeCostsNothing(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, within("26h"), everything)
	c.tell()
	for range 3 {
		c.age("20 h")
		c.exec(`UPDATE punctual.notified SET look_at = now() + interval '1 h'`)
		before := c.count(`SELECT xmin::text::bigint FROM punctual.notified`)
		c.wellAgain("job")
		if after := c.count(`SELECT xmin::text::bigint FROM punctual.notified`); after != before {
			t.Error("the success of a job that is well was written down")
		}
	}
	c.exec(`UPDATE punctual.notified SET look_at = now()`)
	c.wantHeard("")
	c.wantCount(1, "it is not looked at when the last success is 26 hours old",
		`SELECT count(*) FROM punctual.notified WHERE look_at > now() + interval '25 h'`)
}

func TestWhenAJobIsNotStale(t *testing.T) {
	for name, arrange := range map[string]func(c claimer){
		"while it is paused": func(c claimer) {
			c.create("job", halfPast, within("26h"), everything)
			c.pause("job")
			c.age("60 h")
		},
		"soon after it was resumed": func(c claimer) {
			c.create("job", never, within("26h"), everything)
			c.pause("job")
			c.age("60 h")
			c.resumed("job")
			c.age("25 h")
		},
		"without anybody to be told": func(c claimer) {
			c.create("job", never, within("26h"))
			c.age("60 h")
		},
		"once it was deleted": func(c claimer) {
			c.create("job", never, within("26h"), everything)
			c.deleteJob("job")
			c.age("60 h")
		},
		"when nothing is expected any more": func(c claimer) {
			c.create("job", never, within("26h"), everything)
			c.edit("job", func(d *domain.Definition) { d.ExpectSuccessWithin = domain.Duration{} })
			c.age("60 h")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			arrange(c)
			c.wantHeard("")
			c.wantHeard("")
		})
	}
}

// A success that was being committed while the job was found stale is noticed a minute later.
func TestASuccessMeanwhileIsFound(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, within("26h"), everything)
	a := c.begun("job")
	c.age("27 h")
	c.wantHeard("stale 1")
	c.wantCount(1, "jobs are looked at once more", `SELECT count(*) FROM punctual.notified WHERE look_at > now()`)
	c.finish(succeeded(a))
	// The rows now look as if the transaction of the success had not seen that the job was marked stale.
	c.exec(`DELETE FROM punctual.notices`)
	c.exec(`UPDATE punctual.notified SET stale_since = now() - interval '27 h', success_at = NULL, look_at = now()`)
	c.wantHeard("recovered 1")
	c.wantCount(0, "the job is stale still", `SELECT count(*) FROM punctual.notified WHERE stale_since IS NOT NULL`)
}
