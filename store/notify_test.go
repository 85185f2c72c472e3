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
	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/letters"
)

// tell makes the runs that send the notices that are due.
func (c crud) tell() {
	c.t.Helper()
	for {
		left, err := c.Notify(c.t.Context())
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
}

// hears sends the notices that are due, and returns their requests by URL.
func (c claimer) hears() map[string]domain.Assignment {
	c.t.Helper()
	c.tell()
	heard := map[string]domain.Assignment{}
	for _, a := range c.claimReady(100).Runs {
		if a.Job.Notify == nil || len(a.Job.Notify) > 0 || a.Job.ConcurrencyPolicy != domain.PolicyAllow ||
			a.Job.Target.Method != "POST" || a.Job.Target.Headers != nil {
			c.t.Errorf("a notice is sent by %+v", a.Job.Definition)
		}
		if _, twice := heard[a.Job.Target.URL]; twice {
			c.t.Errorf("%s is told twice", a.Job.Target.URL)
		}
		heard[a.Job.Target.URL] = a
	}
	return heard
}

func news(t *testing.T, a domain.Assignment) (n domain.News) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &n); err != nil {
		t.Fatalf("%s: %v", a.Body, err)
	}
	return n
}

// summary returns the events of a notice, each with its count.
func summary(t *testing.T, a domain.Assignment) string {
	t.Helper()
	var parts []string
	for _, e := range news(t, a).Events {
		parts = append(parts, fmt.Sprintf("%s %d", e.Event, e.Count))
	}
	return strings.Join(parts, ", ")
}

// wantHeard fails the test unless exactly this notice goes out now, to the hook only. If want is empty, no notice may
// go out.
func (c claimer) wantHeard(want string) domain.Assignment {
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
	job := c.create("job", never, everything)
	c.create("other", never, everything)
	pulse := func() bool { return c.wants(choreNotices) }
	if pulse() {
		t.Error("there is something to tell before anything happened")
	}
	c.dies("job")
	if !pulse() {
		t.Error("the heartbeat does not tell of the notice")
	}
	c.woken()
	first := c.wantHeard("failing 1, dead 1")
	if !c.woken() {
		t.Error("the tick loop was not told")
	}
	if run := c.run(first.RunID); run.Trigger != domain.TriggerNotify ||
		run.JobID != job.ID || run.MaxAttempts != 5 || !run.ScheduledFor.Equal(run.DueAt) || run.Late ||
		first.Trigger != domain.TriggerNotify || first.WebhookID != uuid.Nil {
		t.Errorf("the run is %+v", run)
	}
	c.finish(succeeded(first))
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
		a := c.wantHeard("failing 1, dead 1")
		if a.Job.Version != 2 {
			t.Errorf("version %d", a.Job.Version)
		}
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
		c.definitions.Forget()
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

func TestADeletedJobIsStillToldOf(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never, everything)
	c.dies("job")
	c.trigger("job")
	c.tell()
	if n := c.ready(job.ID); n != 2 {
		t.Fatalf("%d runs wait", n)
	}
	c.deleteJob("job")
	c.wantHeard("failing 1, dead 1")
	if got := c.history(job.ID); !slices.Contains(got, "manual cancelled job_deleted") {
		t.Errorf("history %q", got)
	}
}

func TestADeadNotice(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", never, forbid, everything)
	c.dies("job")
	dead := c.wantHeard("failing 1, dead 1")
	c.finish(buried(dead))
	c.later()
	c.wantHeard("") // a dead notice makes no notice about itself
	c.edit("job", func(d *domain.Definition) { d.Notify[0].URL = "https://elsewhere.example/" })
	found, _, err := c.ListDeadLetters(t.Context(), c.tenant, letters.DeadLetterFilter{Resolved: open, Notices: true})
	if err != nil || len(found) != 1 || found[0].RunID != dead.RunID || orEmpty(found[0].NotifyURL) != hook {
		t.Fatalf("dead notices %+v (%v)", found, err)
	}
	found, _, err = c.ListDeadLetters(t.Context(), c.tenant, letters.DeadLetterFilter{Resolved: open})
	if err != nil || len(found) != 1 || found[0].Trigger != domain.TriggerManual {
		t.Fatalf("dead letters %+v (%v)", found, err)
	}
	run := c.replay(dead.RunID)
	if run.Trigger != domain.TriggerNotify || run.ReplayOf == nil || run.MaxAttempts != 5 {
		t.Errorf("the replay is %+v", run)
	}
	if _, err := c.tryTrigger("job"); err != nil {
		t.Errorf("a replayed notice is in the way of the job's runs: %v", err)
	}
	active := c.claimReady(100)
	if len(active.Runs) != 2 {
		t.Fatalf("%d runs were claimed", len(active.Runs))
	}
	again := active.Runs[slices.IndexFunc(active.Runs, func(a domain.Assignment) bool { return a.RunID == run.ID })]
	if again.Job.Target.URL != hook || again.WebhookID != dead.RunID || again.IdempotencyKey != dead.RunID.String() ||
		string(again.Body) != string(dead.Body) {
		t.Errorf("the replay is sent as %+v", again)
	}
	c.wantCount(1, "the gate is not the run's own",
		`SELECT count(*) FROM punctual.exclusive WHERE job_id = $1 AND active_run <> $2`, job.ID, run.ID)
	c.finish(buried(again)) // the replay of a notice is a notice too
	again = c.wantHeardAgain(again.RunID)
	c.finish(succeeded(again))
	c.wantNotices()
	if last := c.get("job").LastRun; last == nil || last.Trigger != domain.TriggerManual {
		t.Errorf("the job's last run is %+v", last)
	}
	c.wantCount(1, "the view has another", `SELECT count(*)
		FROM punctual.job_status s
		JOIN punctual.runs r ON r.id = s.last_run_id
		WHERE r.trigger = 'manual'`)
}

// wantHeardAgain replays a dead notice, and fails the test unless it goes to the hook again.
func (c claimer) wantHeardAgain(dead uuid.UUID) domain.Assignment {
	c.t.Helper()
	c.replay(dead)
	a := c.one(c.claimReady(10))
	if a.Job.Target.URL != hook {
		c.t.Errorf("it goes to %s", a.Job.Target.URL)
	}
	return a
}

func TestANoticeTakesNoGate(t *testing.T) {
	for _, policy := range []domain.ConcurrencyPolicy{
		domain.PolicyForbid, domain.PolicyReplace, domain.PolicyWait,
	} {
		t.Run(string(policy), func(t *testing.T) {
			c := newClaimer(t)
			job := c.create("job", never, everything, overlapping(policy))
			c.dies("job")
			c.tell()
			run := c.trigger("job") // the notice still waits
			both := c.claimReady(10).Runs
			if len(both) != 2 {
				t.Fatalf("%d runs were claimed", len(both))
			}
			if !c.hasGate(job.ID, run.ID) {
				t.Error("the gate is not held by the run")
			}
			i := slices.IndexFunc(both, func(a domain.Assignment) bool { return a.Trigger == domain.TriggerNotify })
			c.finish(succeeded(both[i]))
			if !c.hasGate(job.ID, run.ID) {
				t.Error("the end of the notice freed the gate")
			}
			if got := c.get("job").LastRun; got == nil || got.ID != run.ID {
				t.Errorf("the job's last run is %+v", got)
			}
		})
	}
}

// Replays of a job that must not overlap wait for each other. The job's notices do not take part in that.
func TestNoticesAndBulkReplays(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, forbid, everything, notify("https://b.example/", domain.Events...))
	c.dies("job")
	for _, a := range c.hears() {
		c.finish(buried(a))
	}
	c.later()
	c.dies("job")
	c.tell()                                                     // two notices wait in ready
	for notices, want := range map[bool]int{false: 1, true: 2} { // one for the job, and one for each of its URLs
		r := letters.BulkRequest{
			Kind: letters.OperationReplay, LatestPerJob: true, Filter: letters.DeadLetterFilter{Notices: notices},
		}
		if n, err := c.CountDeadLetters(t.Context(), c.tenant, r); err != nil || n != want {
			t.Errorf("of notices %t: %d (%v)", notices, n, err)
		}
	}
	runs, notices := c.start(letters.BulkRequest{Kind: letters.OperationReplay}),
		c.start(letters.BulkRequest{Kind: letters.OperationReplay, Filter: letters.DeadLetterFilter{Notices: true}})
	c.batch()
	c.batch()
	if o := c.operation(runs.ID); o.Done != 1 { // the first of the two dead runs
		t.Errorf("%+v", o)
	}
	if o := c.operation(notices.ID); o.Done != 2 {
		t.Errorf("%+v", o)
	}
	if got := len(c.claimReady(10).Runs); got != 5 {
		t.Errorf("%d runs were claimed", got)
	}
}

// When the replica of a notice is lost, another replica sends the notice, to its URL and past the job's gate. A notice
// that is lost too often is dead, and no notice is sent of that.
func TestALostNoticeGoesOut(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, forbid, everything)
	c.dies("job")
	c.tell()
	lose := func(attempt int) domain.Assignment {
		t.Helper()
		replica := uuid.New()
		a := c.claimAll(replica)
		if len(a) != 1 || a[0].Attempt != attempt || a[0].Job.Target.URL != hook {
			t.Fatalf("claimed %+v", a)
		}
		c.lose(replica)
		if n := c.recover(); n != 1 {
			t.Fatalf("%d recovered", n)
		}
		return a[0]
	}
	notice := lose(1)
	c.trigger("job")
	both := c.claimReady(10).Runs
	if len(both) != 2 {
		t.Fatalf("%d runs were claimed beside each other", len(both))
	}
	for _, a := range both {
		c.finish(givenBack(a))
	}
	c.exec(`DELETE FROM punctual.ready WHERE run_id <> $1`, notice.RunID)
	lose(2)
	lose(3)
	c.wantCount(1, "dead letters", `SELECT count(*)
		FROM punctual.dead_letters
		WHERE reason = 'poison' AND trigger = 'notify' AND notify_url = $1`, hook)
	c.wantNotices()
}

// Neither verify nor explain takes a notice for the run of a slot.
func TestANoticeIsNoSlotsRun(t *testing.T) {
	c := newClaimer(t)
	job, slot := c.dueNow("job", everything)
	c.exec(`UPDATE punctual.job_versions SET valid_from = $1`, slot.Add(-time.Millisecond))
	c.finish(buried(c.one(c.claim(10, false))))
	a := c.wantHeard("failing 1, dead 1")
	c.finish(buried(a))
	c.exec(`UPDATE punctual.schedules SET enabled = false WHERE job_id = $1`, job.ID)
	lines, summary := c.verified(func(o *history.VerifyOptions) { o.From, o.To = slot.Add(-time.Hour), slot })
	if len(lines) != 0 || summary.Slots != 1 || summary.Waiting != 0 {
		t.Errorf("verify finds %q, %+v", lines, summary)
	}
	if e := c.explained("job", slot); e.Outcome != history.OutcomeDead {
		t.Errorf("the slot: %+v", e)
	}
	if e := c.explained("job", a.ScheduledFor); e.Outcome != history.OutcomeNoSlot {
		t.Errorf("the notice's instant: %+v", e)
	}
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
				if _, err := c.Notify(t.Context()); err != nil {
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
				if _, err := c.Finish(t.Context(), []domain.Outcome{buried(all[i]), succeeded(all[i+1])}, nil); err != nil {
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
	for _, a := range c.claimReady(100).Runs {
		for _, e := range news(t, a).Events {
			told[e.Event] += e.Count
		}
	}
	if told[domain.EventDead] != jobs*deaths/2 {
		t.Errorf("told of %d deaths, want %d", told[domain.EventDead], jobs*deaths/2)
	}
	if n := c.count(`SELECT count(*) FROM punctual.runs WHERE trigger = 'notify'`); n > 5*jobs {
		t.Errorf("%d notices for %d jobs within five minutes and after", n, jobs)
	}
	c.wantCount(0, "notices are left", `SELECT count(*) FROM punctual.notices`)
}

func TestNoticesWorkInEveryExecMode(t *testing.T) {
	eachExecMode(t, func(_ *testing.T, r crud) {
		c := asClaimer(r)
		c.create("job", never, everything)
		c.dies("job")
		c.finish(succeeded(c.wantHeard("failing 1, dead 1")))
		c.wellAgain("job")
		c.wantHeard("recovered 1")
	})
}
