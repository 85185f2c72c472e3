package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/internal/pgtest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
)

// tell adds the notices that are due to the lines of their recipients.
func (c crud) tell() {
	c.t.Helper()
	for {
		left, err := c.Notices.Notify(c.t.Context())
		must(c.t, err)
		if !left {
			return
		}
	}
}

// later lets five minutes pass since the last notices.
func (c crud) later() {
	c.t.Helper()
	c.pass("5 min")
}

// pass lets some time pass since the last notices.
func (c crud) pass(span string) {
	c.t.Helper()
	c.exec(`UPDATE punctual.notified
		SET sent = (SELECT coalesce(jsonb_object_agg(key, value::timestamptz - $1::interval), '{}')
			FROM jsonb_each_text(sent))`, span)
	c.exec(`UPDATE punctual.notices SET tell_at = tell_at - $1::interval`, span)
	c.exec(`UPDATE punctual.notice_lines
		SET sent = (SELECT coalesce(jsonb_object_agg(key, value::timestamptz - $1::interval), '{}')
			FROM jsonb_each_text(sent)), due_at = due_at - $1::interval, look_at = look_at - $1::interval,
		causes = (SELECT coalesce(jsonb_object_agg(key, value || jsonb_build_object(
				'newest', (value ->> 'newest')::timestamptz - $1::interval)), '{}')
			FROM jsonb_each(causes))`, span)
	c.exec(`UPDATE punctual.notice_subjects SET tell_at = tell_at - $1::interval`, span)
}

// claimNotice claims a message that waits, whatever makes its recipient wait; nil: there is none.
func (c crud) claimNotice() *notice.Outgoing {
	c.t.Helper()
	c.exec(`UPDATE punctual.notice_lines SET held_until = now()`)
	m, err := c.Notices.ClaimNotice(c.t.Context())
	must(c.t, err)
	return m
}

// hearsAll sends the notices that are due until nothing is left to tell now, and returns the messages. Nothing makes a
// recipient wait.
func (c crud) hearsAll() (all []notice.Outgoing) {
	c.t.Helper()
	c.tell()
	for m := c.claimNotice(); m != nil; m = c.claimNotice() {
		all = append(all, *m)
		must(c.t, c.Notices.Answered(c.t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	}
	return all
}

// hears is hearsAll with at most one message to each recipient, by URL.
func (c crud) hears() map[string]notice.Outgoing {
	c.t.Helper()
	heard := map[string]notice.Outgoing{}
	for _, m := range c.hearsAll() {
		if _, twice := heard[m.To.URL]; twice {
			c.t.Errorf("%s is told twice", m.To.URL)
		}
		heard[m.To.URL] = m
	}
	return heard
}

// message returns what a message of format json says.
func message(t *testing.T, m notice.Outgoing) (said notice.Message) {
	t.Helper()
	if err := json.Unmarshal(m.Body, &said); err != nil {
		t.Fatalf("%s: %v", m.Body, err)
	}
	return said
}

// news returns what a message says of its one job.
func news(t *testing.T, m notice.Outgoing) domain.News {
	t.Helper()
	said := message(t, m)
	if len(said.Subjects) != 1 || len(said.Subjects[0].Jobs) != 1 {
		t.Fatalf("%s is not about one job", m.Body)
	}
	return said.Subjects[0].Jobs[0]
}

// summary returns the events of a notice, each with its count.
func summary(t *testing.T, a notice.Outgoing) string {
	t.Helper()
	var parts []string
	for _, e := range news(t, a).Events {
		parts = append(parts, fmt.Sprintf("%s %d", e.Event, e.Count))
	}
	return strings.Join(parts, ", ")
}

// wantHeard fails the test unless exactly this notice goes out now, to the hook only. If want is empty, no notice may
// go out.
func (c claimer) wantHeard(want string) notice.Outgoing {
	c.t.Helper()
	heard := c.hears()
	a, told := heard[hook]
	switch {
	case want == "" && len(heard) > 0:
		c.t.Fatalf("told of %s", heard[hook].Body)
	case want != "" && (!told || len(heard) != 1):
		c.t.Fatalf("%d URLs are told, the hook: %t", len(heard), told)
	case want != "" && summary(c.t, a) != want:
		c.t.Errorf("told of %s, want %s", summary(c.t, a), want)
	}
	return a
}

// dies makes a run of the job that dies, and wellAgain makes a run that succeeds.
func (c claimer) dies(job string) {
	c.t.Helper()
	c.finish(buried(c.begun(job)))
}

func (c claimer) wellAgain(job string) {
	c.t.Helper()
	c.finish(succeeded(c.begun(job)))
}

func TestTheFirstNoticeGoesAtOnceAndFurtherOnesTogether(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.create("other", never, everything)
	pulse := func() bool { return c.wants(scheduler.ChoreNotices) }
	if pulse() {
		t.Error("there is something to tell before anything happened")
	}
	c.dies("job")
	if !pulse() {
		t.Error("the heartbeat does not tell of the notice")
	}
	c.wantHeard("failing 1, dead 1")
	c.dies("job")
	c.dies("job")
	if pulse() {
		t.Error("the heartbeat tells of notices that are to wait")
	}
	c.wantHeard("")
	c.dies("other") // its notices are grouped apart
	c.wantHeard("failing 1, dead 1")
	c.wellAgain("job") // the first notice of recovery goes at once, and takes the waiting notices along
	if !pulse() {
		t.Error("the heartbeat does not tell of the recovery")
	}
	c.wantHeard("dead 2, recovered 1")
	c.dies("job")
	c.wellAgain("job")
	c.pass("4 min 50 s")
	c.wantHeard("")
	c.pass("10 s")
	if !pulse() {
		t.Error("the heartbeat does not tell that the five minutes are over")
	}
	c.wantHeard("failing 1, dead 1, recovered 1")
	c.wantHeard("")
	c.wantCount(0, "notices are left", `SELECT count(*) FROM punctual.notices`)
	c.later()
	c.dies("job") // after five quiet minutes, a notice counts as the first again
	c.wantHeard("failing 1, dead 1")
}

// A notice that was being written while other notices went out waits, and does not go out alone.
func TestANoticeThatComesDuringATellingWaits(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.dies("job")
	c.wantHeard("failing 1, dead 1")
	c.dies("job")
	// As if it was written before the other notices of the job went out.
	c.exec(`UPDATE punctual.notices SET tell_at = now()`)
	c.wantHeard("")
	c.wantCount(1, "it is not put off to the end of the five minutes", `SELECT count(*)
		FROM punctual.notices n
		JOIN punctual.notified d ON d.job_id = n.job_id
		WHERE n.tell_at = (d.sent ->> 'dead')::timestamptz + interval '5 min'`)
	c.later()
	c.wantHeard("dead 1")
}

func TestANoticeSaysWhatHappened(t *testing.T) {
	c := newClaimer(t)
	slow, pager := "https://slow.example/", "https://pager.example/other"
	job := c.create("job", never, everything, notify(pager, domain.EventRecovered), notify(slow, domain.EventMissed),
		notify(hook, domain.EventDead), notify(pager, domain.EventLate))
	var dead []uuid.UUID
	for range 3 {
		o := buried(c.begun("job"))
		o.Error = strings.Repeat("é", 2000)
		c.finish(o)
		dead = append(dead, o.RunID)
	}
	c.wellAgain("job")
	c.exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, happened_at)
		SELECT $1, $2, 1, 'late', gen_random_uuid(), now(), now() - interval '1 h' + i * interval '1 s'
		FROM generate_series(1, 1000) i`, job.ID, c.tenant)
	heard := c.hears()
	if len(heard) != 2 || summary(t, heard[hook]) != "late 1000, failing 1, dead 3, recovered 1" ||
		summary(t, heard[pager]) != "late 1000, recovered 1" {
		t.Fatalf("heard %v", heard)
	}
	n := news(t, heard[hook])
	if n.Job != "job" || n.JobID != job.ID || n.Tenant != "default" {
		t.Errorf("the notice is about %q (%s) of %q", n.Job, n.JobID, n.Tenant)
	}
	late := n.Events[0]
	if len(late.Runs) != domain.NewsRuns || late.LastAt.Sub(late.FirstAt) != 999*time.Second ||
		!late.Runs[0].HappenedAt.Equal(late.LastAt) ||
		!slices.IsSortedFunc(late.Runs, func(a, b domain.NewsRun) int { return b.HappenedAt.Compare(a.HappenedAt) }) {
		t.Errorf("of the late runs it says %+v", late)
	}
	for i, r := range n.Events[2].Runs {
		if r.ID != dead[2-i] || r.Reason != domain.ReasonHTTP5xx || r.Error != strings.Repeat("é", 1000) ||
			r.ScheduledFor.IsZero() || r.Slots != nil {
			t.Errorf("dead run %d: %+v", i, r)
		}
	}
	if size := len(heard[hook].Body); size > 20<<10 {
		t.Errorf("%d bytes", size)
	}
}

// A notice leads to where people read: to the pages, or to the API if there are none.
func TestANoticeLinksToWhatItIsAbout(t *testing.T) {
	for pages, want := range map[bool][2]string{
		true: {"/jobs/job", "/runs/"}, false: {"/v1/jobs/job/runs", "/v1/runs/"},
	} {
		t.Run(fmt.Sprintf("pages %t", pages), func(t *testing.T) {
			t.Parallel()
			const public = "https://punctual.example"
			c := asClaimer(openCRUD(t, Options{
				DatabaseURL: pgtest.DSN(t), MaxConns: 8, Master: pgtest.Master(t), PublicURL: public, Pages: pages,
			}))
			c.create("job", never, notify(hook, domain.EventDead))
			o := buried(c.begun("job"))
			c.finish(o)
			n := news(t, c.hears()[hook])
			if got := n.Events[0].Runs[0].Link; n.Link != public+want[0] || got != public+want[1]+o.RunID.String() {
				t.Errorf("it links to %q and %q", n.Link, got)
			}
		})
	}
}

func TestTheCurrentDefinitionSaysWhoIsTold(t *testing.T) {
	t.Run("of what happened before it was changed", func(t *testing.T) {
		c := newClaimer(t)
		c.create("job", never, notify("https://old.example/", domain.Events...))
		c.dies("job")
		c.edit("job", func(d *domain.Definition) { d.Notify = nil; everything(d) })
		c.wantHeard("failing 1, dead 1")
	})
	t.Run("or that nobody is, and then the next one is a first one", func(t *testing.T) {
		c := newClaimer(t)
		c.create("job", never, everything)
		c.dies("job")
		c.edit("job", func(d *domain.Definition) { d.Notify = nil })
		c.wantHeard("")
		c.edit("job", everything)
		c.dies("job")
		c.wantHeard("dead 1") // the job has been failing since its first death, so only the death is news
	})
	t.Run("of a paused job", func(t *testing.T) {
		c := newClaimer(t)
		c.create("job", halfPast, everything)
		c.dies("job")
		c.pause("job")
		c.wantHeard("failing 1, dead 1")
	})
	t.Run("and a deleted one's last", func(t *testing.T) {
		c := newClaimer(t)
		c.create("job", never, everything)
		c.dies("job")
		c.deleteJob("job")
		c.wantHeard("failing 1, dead 1")
	})
	t.Run("unless this binary cannot read it", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", never, everything)
		c.dies("job")
		c.edit("job", described("newer"))
		c.Definitions.Forget()
		c.exec(`UPDATE punctual.job_versions SET definition = '{"name":"job","newer":true}'
			WHERE job_id = $1 AND version = 2`, job.ID)
		c.wantHeard("")
		c.wantCount(2, "the notice is not kept for one that can",
			`SELECT count(*) FROM punctual.notices WHERE tell_at > now() + interval '50 s'`)
	})
	t.Run("and of a job that was removed nobody is", func(t *testing.T) {
		c := newClaimer(t)
		job := c.create("job", never, everything)
		c.dies("job")
		c.exec(`DELETE FROM punctual.jobs WHERE id = $1`, job.ID)
		c.wantHeard("")
		c.wantNotices()
	})
}

// Each event is told once, however many replicas send notices and while further events happen.
func TestManyReplicasTellOfEachThingOnce(t *testing.T) {
	c := newClaimer(t)
	const jobs, deaths, tellers = 5, 8, 4 // with an odd number of jobs, each job has runs that die and runs that succeed
	var all []domain.Assignment
	for i := range jobs {
		c.create(fmt.Sprint("job-", i), never, everything)
	}
	for i := range jobs * deaths {
		all = append(all, c.begun(fmt.Sprint("job-", i%jobs)))
	}
	var telling, dying sync.WaitGroup
	stop := make(chan struct{})
	for range tellers {
		telling.Go(func() {
			for {
				if _, err := c.Notices.Notify(t.Context()); err != nil {
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
				if _, err := c.Claims.Finish(t.Context(), []domain.Outcome{buried(all[i]), succeeded(all[i+1])}, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	dying.Wait()
	close(stop)
	telling.Wait()
	c.later()
	c.tell()
	told := map[domain.Event]int{}
	for _, m := range c.hears() {
		for _, subject := range message(t, m).Subjects {
			for _, job := range subject.Jobs {
				for _, e := range job.Events {
					told[e.Event] += e.Count
				}
			}
		}
	}
	if told[domain.EventDead] != jobs*deaths/2 {
		t.Errorf("told of %d deaths, want %d", told[domain.EventDead], jobs*deaths/2)
	}
	c.wantCount(0, "notices are left", `SELECT count(*) FROM punctual.notices`)
}

func TestNoticesWorkInEveryExecMode(t *testing.T) {
	eachExecMode(t, func(_ *testing.T, r crud) {
		c := asClaimer(r)
		c.create("job", never, everything)
		c.dies("job")
		c.wantHeard("failing 1, dead 1")
		c.wellAgain("job")
		c.wantHeard("recovered 1")
	})
}
