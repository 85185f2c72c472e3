package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/notices"
)

// prepares makes all recipients ready for a batch, and bounds what waits.
func (c crud) prepares() {
	c.t.Helper()
	_, err := c.Notices.PrepareLifecycle(c.t.Context())
	must(c.t, err)
	c.exec(`UPDATE punctual.lifecycle_lines SET held_until = now() WHERE NOT under_way`)
}

// claimEvents claims a batch; nil: there is none.
func (c crud) claimEvents() *notice.Outgoing {
	c.t.Helper()
	m, err := c.Notices.ClaimLifecycle(c.t.Context())
	must(c.t, err)
	return m
}

func (c crud) answers(m *notice.Outgoing, a notice.Answer) {
	c.t.Helper()
	must(c.t, c.Notices.Answered(c.t.Context(), *m, a))
}

// batches takes all batches that wait, and returns what they say.
func (c crud) batches() (all []notice.Lifecycle) {
	c.t.Helper()
	for {
		c.prepares()
		m := c.claimEvents()
		if m == nil {
			return all
		}
		all = append(all, said(c.t, m))
		c.answers(m, notice.Answer{Arrival: notice.Delivered})
	}
}

func said(t *testing.T, m *notice.Outgoing) (l notice.Lifecycle) {
	t.Helper()
	must(t, json.Unmarshal(m.Body, &l))
	return l
}

// hearsEvents returns the events that wait, each with its job and attempt, and takes them.
func (c crud) hearsEvents() string {
	c.t.Helper()
	var all []string
	for _, b := range c.batches() {
		for _, e := range b.Events {
			all = append(all, fmt.Sprintf("%s %s %d", e.Event, e.Job, e.Attempt))
		}
	}
	return strings.Join(all, ", ")
}

func (c crud) wantEvents(want string) {
	c.t.Helper()
	if got := c.hearsEvents(); got != want {
		c.t.Errorf("told of %q, want %q", got, want)
	}
}

// waitingEvents writes n events that wait for each of some recipients of the tenant.
func (c crud) waitingEvents(n int, recipients ...string) {
	c.t.Helper()
	c.exec(`
		INSERT INTO punctual.lifecycle_events (line_id, tenant, url, event, run_id, job_id, scheduled_for, attempt)
		SELECT md5(url)::uuid, $2, url, 'succeeded', gen_random_uuid(), gen_random_uuid(), now(), 1
		FROM generate_series(1, $1) CROSS JOIN unnest($3::text[]) url`, n, c.tenant, recipients)
	c.prepares()
}

func TestTheEventsOfABurstComeInFewBatches(t *testing.T) {
	c := newClaimer(t)
	c.many(250, "burst", 0, notify(hook, domain.EventSucceeded, domain.EventStarted), notify(hook, domain.EventDead))
	var runs []domain.Assignment
	for len(runs) < 250 {
		runs = append(runs, c.claim(100, false).Runs...)
	}
	all := c.batches()
	for part := range slices.Chunk(runs, 50) {
		outcomes := make([]domain.Outcome, 0, len(part))
		for _, a := range part {
			outcomes = append(outcomes, succeeded(a))
		}
		c.finish(outcomes...)
		c.finish(outcomes...) // it was not known whether the first write was committed
	}
	all = append(all, c.batches()...)
	seen := map[string]int{}
	for _, b := range all {
		for _, e := range b.Events {
			seen[string(e.Event)+e.Run.String()]++
			if e.JobID == uuid.Nil || e.StartedAt == nil || (e.FinishedAt != nil) != (e.Event == domain.EventSucceeded) ||
				e.Attempt != 1 || !strings.HasPrefix(e.Job, "burst-") {
				t.Errorf("%+v", e)
			}
		}
		if b.LeftOut != 0 || b.Tenant != "default" {
			t.Errorf("%d left out, of tenant %s", b.LeftOut, b.Tenant)
		}
	}
	if len(all) != 6 || len(seen) != 500 {
		t.Errorf("%d batches tell of %d events", len(all), len(seen))
	}
	for _, a := range runs {
		if seen["started"+a.RunID.String()] != 1 || seen["succeeded"+a.RunID.String()] != 1 {
			t.Fatalf("run %s is told of %v", a.RunID, seen)
		}
	}
}

// A start is told once, whatever becomes of the run then.
func TestTheLifeOfARunIsTold(t *testing.T) {
	c := newClaimer(t)
	lives := notify(hook, domain.EventStarted, domain.EventSucceeded)
	c.create("a", never, lives)
	c.finish(givenBack(c.begun("a")))
	c.wantEvents("started a 1")
	c.finish(failed(c.again()))
	again := c.again()
	c.wantEvents("")
	c.finish(succeeded(again))
	c.wantEvents("succeeded a 2")

	c.create("lost", never, lives)
	c.begun("lost")
	c.lose(c.replica)
	c.recover()
	c.finish(succeeded(c.again()))
	c.wantEvents("started lost 1, succeeded lost 2")

	c.create("exclusive", never, lives, func(d *domain.Definition) { d.ConcurrencyPolicy = domain.PolicyForbid })
	c.finish(buried(c.begun("exclusive")))
	c.wantEvents("started exclusive 1")

	a := c.accepted("async", lives)
	c.wantEvents("started async 1")
	_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	must(t, err)
	c.wantEvents("succeeded async 1")

	c.create("flow", never, steps("part"), lives)
	c.startWorkflow("flow", "")
	part := c.claimSteps()["part"]
	c.wantEvents("started flow 1")
	c.finish(succeeded(part))
	c.goOn()
	c.wantEvents("succeeded flow 1")

	_, _ = c.dueNow("slot", lives)
	a = c.one(c.claim(10, false))
	c.wantEvents("started slot 1")
	c.finish(succeeded(a))
	c.wantEvents("succeeded slot 1")
}

func TestEventsThatNoEntryAsksForAreNotWritten(t *testing.T) {
	c := newClaimer(t)
	c.create("silent", never, tellsNobody)
	c.create("trouble", never, everything)
	c.create("starts", never, notify(hook, domain.EventStarted))
	for _, job := range []string{"silent", "trouble"} {
		c.wellAgain(job)
		c.dies(job)
	}
	c.wantCount(0, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	c.wellAgain("starts")
	c.wantCount(1, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	c.byDefault(domain.Notify{On: []domain.Event{domain.EventSucceeded}, URL: "https://other.example/"})
	c.create("default", never)
	c.wellAgain("silent")
	c.wellAgain("default")
	c.wantCount(0, "notices are written", `SELECT count(*) FROM punctual.notices WHERE event IN ('started', 'succeeded')`)
	c.wantEvents("started starts 1, succeeded default 1")
}

// What waits for a slow recipient is bounded, and the next batch says how much was left out.
func TestTheEventsThatWaitAreBounded(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.waitingEvents(10_050, hook)
	c.wantCount(10_000, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	slow := c.claimEvents()
	if got := said(t, slow); got.LeftOut != 50 || len(got.Events) != 100 || len(slow.Body) > 100_000 {
		t.Errorf("%d are left out, and it has %d events in %d bytes", got.LeftOut, len(got.Events), len(slow.Body))
	}
	c.waitingEvents(150, hook)
	c.dies("job")
	c.wantHeard("failing 1, dead 1")
	c.answers(slow, notice.Answer{Arrival: notice.Delivered})
	if c.claimEvents() != nil {
		t.Error("a batch comes less than a second after the one before")
	}
	c.exec(`UPDATE punctual.lifecycle_events SET recorded_at = now() - interval '25 hours' WHERE id % 2 = 0`)
	c.prepares()
	if got := said(t, c.claimEvents()); got.LeftOut != 50+5_000 {
		t.Errorf("%d are left out", got.LeftOut)
	}
}

// However many recipients a tenant has, few batches of it are under way.
func TestFewBatchesOfATenantAreUnderWay(t *testing.T) {
	c := newClaimer(t)
	c.waitingEvents(1, "https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/")
	first, second := c.claimEvents(), c.claimEvents()
	if first == nil || second == nil || first.To.URL == second.To.URL || c.claimEvents() != nil {
		t.Fatal("not two of four are under way")
	}
	c.answers(first, notice.Answer{Arrival: notice.Unsent})
	if c.claimEvents() == nil || c.claimEvents() != nil {
		t.Error("an answer makes no room for one batch")
	}
	c.freeze(c.tenant, "a test")
	c.exec(`UPDATE punctual.lifecycle_lines SET held_until = now()`)
	if c.claimEvents() != nil {
		t.Error("a frozen tenant tells")
	}
}

// A batch is the same until the recipient has taken it, or it is given up.
func TestABatchThatDoesNotArriveIsSentAgain(t *testing.T) {
	c := newClaimer(t)
	c.waitingEvents(3, hook)
	first := c.claimEvents()
	c.waitingEvents(3, hook)
	for _, arrival := range []notice.Arrival{notice.Unknown, notice.PutOff, notice.Unsent, ""} {
		if arrival == "" { // its replica is lost
			c.exec(`UPDATE punctual.lifecycle_lines SET held_until = now()`)
		} else {
			c.answers(first, notice.Answer{Arrival: arrival, RetryAfter: time.Second})
			if left, err := c.Notices.PrepareLifecycle(t.Context()); left || err != nil || c.claimEvents() != nil {
				t.Errorf("%s: there is no pause, error %v", arrival, err)
			}
			c.prepares()
		}
		if again := c.claimEvents(); again == nil || again.ID != first.ID || string(again.Body) != string(first.Body) {
			t.Fatalf("after %q the batch is %+v", arrival, again)
		}
	}
	c.wantCount(2, "failures", `SELECT failures FROM punctual.lifecycle_lines`)
	_, waiting, _, err := c.Notices.ListNotices(t.Context(), c.tenant, notices.Filter{})
	if err != nil || len(waiting) != 1 || waiting[0].URL != hook || waiting[0].FailingSince == nil {
		t.Errorf("those that take nothing are %+v, error %v", waiting, err)
	}
	for range 3 {
		c.answers(first, notice.Answer{Arrival: notice.Refused, Status: 400})
	}
	c.answers(first, notice.Answer{Arrival: notice.Delivered}) // of another replica, too late
	c.prepares()
	second := c.claimEvents()
	if got := said(t, second); second.ID == first.ID || got.LeftOut != 3 || len(got.Events) != 3 {
		t.Errorf("after it was given up the batch is %+v", got)
	}
	c.exec(`UPDATE punctual.lifecycle_lines SET message = $1`, domain.NewRunID(time.Now().Add(-25*time.Hour)))
	second.ID = c.lineMessage()
	c.answers(second, notice.Answer{Arrival: notice.PutOff})
	c.wantCount(6, "events are left out", `SELECT left_out FROM punctual.lifecycle_lines WHERE body IS NULL`)
	_, _, err = c.Notices.ForgetNotices(t.Context())
	must(t, err)
	c.wantCount(1, "lines are kept", `SELECT count(*) FROM punctual.lifecycle_lines`)
	c.exec(`UPDATE punctual.lifecycle_lines SET held_until = now() - interval '9 days'`)
	_, _, err = c.Notices.ForgetNotices(t.Context())
	must(t, err)
	c.wantCount(0, "lines are kept", `SELECT count(*) FROM punctual.lifecycle_lines`)
}

func (c crud) lineMessage() uuid.UUID {
	c.t.Helper()
	return value[uuid.UUID](c, `SELECT message FROM punctual.lifecycle_lines`)
}
