package notices_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store"
)

func TestTheFirstNoticeGoesAtOnceAndFurtherOnesTogether(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	c.Create("other", Never, Everything)
	pulse := func() bool { return c.Wants(scheduler.ChoreNotices) }
	if pulse() {
		t.Error("there is something to tell before anything happened")
	}
	c.Dies("job")
	if !pulse() {
		t.Error("the heartbeat does not tell of the notice")
	}
	c.WantHeard("failing 1, dead 1")
	c.Dies("job")
	c.Dies("job")
	if pulse() {
		t.Error("the heartbeat tells of notices that are to wait")
	}
	c.WantHeard("")
	c.Dies("other") // its notices are grouped apart
	c.WantHeard("failing 1, dead 1")
	c.WellAgain("job") // the first notice of recovery goes at once, and takes the waiting notices along
	if !pulse() {
		t.Error("the heartbeat does not tell of the recovery")
	}
	c.WantHeard("dead 2, recovered 1")
	c.Dies("job")
	c.WellAgain("job")
	c.Pass("4 min 50 s")
	c.WantHeard("")
	c.Pass("10 s")
	if !pulse() {
		t.Error("the heartbeat does not tell that the five minutes are over")
	}
	c.WantHeard("failing 1, dead 1, recovered 1")
	c.WantHeard("")
	c.WantCount(0, "notices are left", `SELECT count(*) FROM punctual.notices`)
	c.Later()
	c.Dies("job") // after five quiet minutes, a notice counts as the first again
	c.WantHeard("failing 1, dead 1")
}

// A notice that was being written while other notices went out waits, and does not go out alone.
func TestANoticeThatComesDuringATellingWaits(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	c.Dies("job")
	c.WantHeard("failing 1, dead 1")
	c.Dies("job")
	// As if it was written before the other notices of the job went out.
	c.Exec(`UPDATE punctual.notices SET tell_at = now()`)
	c.WantHeard("")
	c.WantCount(1, "it is not put off to the end of the five minutes", `SELECT count(*)
		FROM punctual.notices n
		JOIN punctual.notified d ON d.job_id = n.job_id
		WHERE n.tell_at = (d.sent ->> 'dead')::timestamptz + interval '5 min'`)
	c.Later()
	c.WantHeard("dead 1")
}

func TestANoticeSaysWhatHappened(t *testing.T) {
	c := NewReplica(t)
	slow, pager := "https://slow.example/", "https://pager.example/other"
	job := c.Create("job", Never, Everything, Notify(pager, jobspec.EventRecovered), Notify(slow, jobspec.EventMissed),
		Notify(Hook, jobspec.EventDead), Notify(pager, jobspec.EventLate))
	var dead []uuid.UUID
	for range 3 {
		o := Buried(c.Begun("job"))
		o.Error = strings.Repeat("é", 2000)
		c.Finish(o)
		dead = append(dead, o.RunID)
	}
	c.WellAgain("job")
	c.Exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, happened_at)
		SELECT $1, $2, 1, 'late', gen_random_uuid(), now(), now() - interval '1 h' + i * interval '1 s'
		FROM generate_series(1, 1000) i`, job.ID, c.Tenant)
	heard := c.Hears()
	if len(heard) != 2 || Summary(t, heard[Hook]) != "late 1000, failing 1, dead 3, recovered 1" ||
		Summary(t, heard[pager]) != "late 1000, recovered 1" {
		t.Fatalf("heard %v", heard)
	}
	n := Digest(t, heard[Hook])
	if n.Job != "job" || n.JobID != job.ID || n.Tenant != "default" {
		t.Errorf("the notice is about %q (%s) of %q", n.Job, n.JobID, n.Tenant)
	}
	late := n.Events[0]
	if len(late.Runs) != domain.DigestRuns || late.LastAt.Sub(late.FirstAt) != 999*time.Second ||
		!late.Runs[0].HappenedAt.Equal(late.LastAt) ||
		!slices.IsSortedFunc(late.Runs, func(a, b domain.DigestRun) int { return b.HappenedAt.Compare(a.HappenedAt) }) {
		t.Errorf("of the late runs it says %+v", late)
	}
	for i, r := range n.Events[2].Runs {
		if r.ID != dead[2-i] || r.Reason != domain.ReasonHTTP5xx || r.Error != strings.Repeat("é", 1000) ||
			r.ScheduledFor.IsZero() || r.Slots != nil {
			t.Errorf("dead run %d: %+v", i, r)
		}
	}
	if size := len(heard[Hook].Body); size > 20<<10 {
		t.Errorf("%d bytes", size)
	}
}

// A notice leads to where people read: to the pages, or to the API if there are none.
func TestANoticeLinksToWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for pages, want := range map[bool][2]string{
		true: {"/jobs/job", "/runs/"}, false: {"/v1/jobs/job/runs", "/v1/runs/"},
	} {
		t.Run(fmt.Sprintf("pages %t", pages), func(t *testing.T) {
			t.Parallel()
			const public = "https://punctual.example"
			c := AsReplica(OpenFixture(t, store.Options{
				DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), PublicURL: public, Pages: pages,
			}))
			c.Create("job", Never, Notify(Hook, jobspec.EventDead))
			o := Buried(c.Begun("job"))
			c.Finish(o)
			n := Digest(t, c.Hears()[Hook])
			if got := n.Events[0].Runs[0].Link; n.Link != public+want[0] || got != public+want[1]+o.RunID.String() {
				t.Errorf("it links to %q and %q", n.Link, got)
			}
		})
	}
}

func TestTheCurrentDefinitionSaysWhoIsTold(t *testing.T) {
	t.Parallel()
	t.Run("of what happened before it was changed", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("job", Never, Notify("https://old.example/", jobspec.Events...))
		c.Dies("job")
		c.Edit("job", func(d *jobspec.Definition) { d.Notify = nil; Everything(d) })
		c.WantHeard("failing 1, dead 1")
	})
	t.Run("or that nobody is, and then the next one is a first one", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("job", Never, Everything)
		c.Dies("job")
		c.Edit("job", func(d *jobspec.Definition) { d.Notify = nil })
		c.WantHeard("")
		c.Edit("job", Everything)
		c.Dies("job")
		c.WantHeard("dead 1") // the job has been failing since its first death, so only the death is new
	})
	t.Run("of a paused job", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("job", HalfPast, Everything)
		c.Dies("job")
		c.Pause("job")
		c.WantHeard("failing 1, dead 1")
	})
	t.Run("and a deleted one's last", func(t *testing.T) {
		c := NewReplica(t)
		c.Create("job", Never, Everything)
		c.Dies("job")
		c.DeleteJob("job")
		c.WantHeard("failing 1, dead 1")
	})
	t.Run("unless this binary cannot read it", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", Never, Everything)
		c.Dies("job")
		c.Edit("job", Described("newer"))
		c.Definitions.Forget()
		c.Exec(`UPDATE punctual.job_versions SET definition = '{"name":"job","newer":true}'
			WHERE job_id = $1 AND version = 2`, job.ID)
		c.WantHeard("")
		c.WantCount(2, "the notice is not kept for one that can",
			`SELECT count(*) FROM punctual.notices WHERE tell_at > now() + interval '50 s'`)
	})
	t.Run("and of a job that was removed nobody is", func(t *testing.T) {
		c := NewReplica(t)
		job := c.Create("job", Never, Everything)
		c.Dies("job")
		c.Exec(`DELETE FROM punctual.jobs WHERE id = $1`, job.ID)
		c.WantHeard("")
		wantNotices(c.Fixture)
	})
}

// Each event is told once, however many replicas send notices and while further events happen.
func TestManyReplicasTellOfEachThingOnce(t *testing.T) {
	c := NewReplica(t)
	const jobs, deaths, collectors = 5, 8, 4 // with an odd number of jobs, each has runs that die and runs that succeed
	var all []domain.Assignment
	for i := range jobs {
		c.Create(fmt.Sprint("job-", i), Never, Everything)
	}
	for i := range jobs * deaths {
		all = append(all, c.Begun(fmt.Sprint("job-", i%jobs)))
	}
	var collecting, dying sync.WaitGroup
	stop := make(chan struct{})
	for range collectors {
		collecting.Go(func() {
			for {
				if _, err := c.Notices.Collect(t.Context()); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for part := range 4 { // each part writes outcomes of all jobs, interleaved with the other parts
		dying.Go(func() {
			for i := part * 2; i < len(all); i += 8 {
				for {
					_, err := c.Claims.Finish(t.Context(), []domain.Outcome{Buried(all[i]), Succeeded(all[i+1])}, nil)
					if left, is := errors.AsType[*scheduler.LeftOutcomesError](err); is && len(left.Failing) == 0 {
						continue // as a replica does: others had locked the rows for long
					}
					if err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	dying.Wait()
	close(stop)
	collecting.Wait()
	c.Later()
	c.Tell()
	told := map[jobspec.Event]int{}
	for _, m := range c.Hears() {
		for _, subject := range Message(t, m).Subjects {
			for _, job := range subject.Jobs {
				for _, e := range job.Events {
					told[e.Event] += e.Count
				}
			}
		}
	}
	if told[jobspec.EventDead] != jobs*deaths/2 {
		t.Errorf("told of %d deaths, want %d", told[jobspec.EventDead], jobs*deaths/2)
	}
	c.WantCount(0, "notices are left", `SELECT count(*) FROM punctual.notices`)
}

func TestNoticesWorkInEveryExecMode(t *testing.T) {
	t.Parallel()
	EachExecMode(t, func(_ *testing.T, r Fixture) {
		c := AsReplica(r)
		c.Create("job", Never, Everything)
		c.Dies("job")
		c.WantHeard("failing 1, dead 1")
		c.WellAgain("job")
		c.WantHeard("recovered 1")
	})
}
