package notices_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/notices"
)

// prepares makes all recipients ready for a batch, and bounds what waits.
func prepares(c Fixture) {
	c.T.Helper()
	_, err := c.Notices.CollectLifecycle(c.T.Context())
	Must(c.T, err)
	c.Exec(`UPDATE punctual.outbox SET held_until = now() WHERE NOT under_way`)
}

// claimEvents claims a batch; nil: there is none.
func claimEvents(c Fixture) *notice.Outgoing {
	c.T.Helper()
	m, err := c.Notices.Claim(c.T.Context(), true)
	Must(c.T, err)
	return m
}

func answers(c Fixture, m *notice.Outgoing, a notice.Answer) {
	c.T.Helper()
	Must(c.T, c.Notices.Answered(c.T.Context(), *m, a))
}

// batches takes all batches that wait, and returns what they say.
func batches(c Fixture) (all []notice.Batch) {
	c.T.Helper()
	for {
		prepares(c)
		m := claimEvents(c)
		if m == nil {
			return all
		}
		all = append(all, said(c.T, m))
		answers(c, m, notice.Answer{Arrival: notice.Delivered})
	}
}

func said(t *testing.T, m *notice.Outgoing) (l notice.Batch) {
	t.Helper()
	Must(t, json.Unmarshal(m.Body, &l))
	return l
}

// hearsEvents returns the events that wait, each with its job and attempt, and takes them.
func hearsEvents(c Fixture) string {
	c.T.Helper()
	var all []string
	for _, b := range batches(c) {
		for _, e := range b.Events {
			all = append(all, fmt.Sprintf("%s %s %d", e.Event, e.Job, e.Attempt))
		}
	}
	return strings.Join(all, ", ")
}

func wantEvents(c Fixture, want string) {
	c.T.Helper()
	if got := hearsEvents(c); got != want {
		c.T.Errorf("told of %q, want %q", got, want)
	}
}

// waitingEvents writes n events that wait for each of some recipients of the tenant.
func waitingEvents(c Fixture, n int, recipients ...string) {
	c.T.Helper()
	c.Exec(`
		INSERT INTO punctual.lifecycle_events (recipient_id, tenant, url, event, run_id, job_id, scheduled_for, attempt)
		SELECT md5(url)::uuid, $2, url, 'succeeded', gen_random_uuid(), gen_random_uuid(), now(), 1
		FROM generate_series(1, $1) CROSS JOIN unnest($3::text[]) url`, n, c.Tenant, recipients)
	prepares(c)
}

func TestTheEventsOfABurstComeInFewBatches(t *testing.T) {
	c := NewReplica(t)
	c.Many(250, "burst", 0, Notify(Hook, jobspec.EventSucceeded, jobspec.EventStarted), Notify(Hook, jobspec.EventDead))
	var runs []domain.Assignment
	for len(runs) < 250 {
		runs = append(runs, c.Claim(100, false).Runs...)
	}
	all := batches(c.Fixture)
	for part := range slices.Chunk(runs, 50) {
		outcomes := make([]domain.Outcome, 0, len(part))
		for _, a := range part {
			outcomes = append(outcomes, Succeeded(a))
		}
		c.Finish(outcomes...)
		c.Finish(outcomes...) // it was not known whether the first write was committed
	}
	all = append(all, batches(c.Fixture)...)
	seen := map[string]int{}
	for _, b := range all {
		for _, e := range b.Events {
			seen[string(e.Event)+e.Run.String()]++
			if e.JobID == uuid.Nil || e.StartedAt == nil || (e.FinishedAt != nil) != (e.Event == jobspec.EventSucceeded) ||
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
	c := NewReplica(t)
	lives := Notify(Hook, jobspec.EventStarted, jobspec.EventSucceeded)
	c.Create("a", Never, lives)
	c.Finish(GivenBack(c.Begun("a")))
	wantEvents(c.Fixture, "started a 1")
	c.Finish(Failed(c.Again()))
	again := c.Again()
	wantEvents(c.Fixture, "")
	c.Finish(Succeeded(again))
	wantEvents(c.Fixture, "succeeded a 2")

	c.Create("lost", Never, lives)
	c.Begun("lost")
	c.Lose(c.ReplicaID)
	c.Recover()
	c.Finish(Succeeded(c.Again()))
	wantEvents(c.Fixture, "started lost 1, succeeded lost 2")

	c.Create("exclusive", Never, lives, func(d *jobspec.Definition) { d.ConcurrencyPolicy = jobspec.PolicyForbid })
	c.Finish(Buried(c.Begun("exclusive")))
	wantEvents(c.Fixture, "started exclusive 1")

	a := c.Accepted("async", lives)
	wantEvents(c.Fixture, "started async 1")
	_, err := c.Runs.CompleteRun(t.Context(), a.RunID, a.RunToken, nil)
	Must(t, err)
	wantEvents(c.Fixture, "succeeded async 1")

	c.Create("flow", Never, Steps("part"), lives)
	c.StartWorkflow("flow", "")
	part := c.ClaimSteps()["part"]
	wantEvents(c.Fixture, "started flow 1")
	c.Finish(Succeeded(part))
	c.GoOn()
	wantEvents(c.Fixture, "succeeded flow 1")

	_, _ = c.DueNow("slot", lives)
	a = c.One(c.Claim(10, false))
	wantEvents(c.Fixture, "started slot 1")
	c.Finish(Succeeded(a))
	wantEvents(c.Fixture, "succeeded slot 1")
}

func TestEventsThatNoEntryAsksForAreNotWritten(t *testing.T) {
	c := NewReplica(t)
	c.Create("silent", Never, TellsNobody)
	c.Create("trouble", Never, Everything)
	c.Create("starts", Never, Notify(Hook, jobspec.EventStarted))
	for _, job := range []string{"silent", "trouble"} {
		c.WellAgain(job)
		c.Dies(job)
	}
	c.WantCount(0, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	c.WellAgain("starts")
	c.WantCount(1, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	c.ByDefault(jobspec.Notify{On: []jobspec.Event{jobspec.EventSucceeded}, URL: "https://other.example/"})
	c.Create("default", Never)
	c.WellAgain("silent")
	c.WellAgain("default")
	c.WantCount(0, "notices are written", `SELECT count(*) FROM punctual.notices WHERE event IN ('started', 'succeeded')`)
	wantEvents(c.Fixture, "started starts 1, succeeded default 1")
}

// What waits for a slow recipient is bounded, and the next batch says how much was left out.
func TestTheEventsThatWaitAreBounded(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	waitingEvents(c.Fixture, 10_050, Hook)
	c.WantCount(10_000, "events wait", `SELECT count(*) FROM punctual.lifecycle_events`)
	slow := claimEvents(c.Fixture)
	if got := said(t, slow); got.LeftOut != 50 || len(got.Events) != 100 || len(slow.Body) > 100_000 {
		t.Errorf("%d are left out, and it has %d events in %d bytes", got.LeftOut, len(got.Events), len(slow.Body))
	}
	waitingEvents(c.Fixture, 150, Hook)
	c.Dies("job")
	c.WantHeard("failing 1, dead 1")
	answers(c.Fixture, slow, notice.Answer{Arrival: notice.Delivered})
	if claimEvents(c.Fixture) != nil {
		t.Error("a batch comes less than a second after the one before")
	}
	c.Exec(`UPDATE punctual.lifecycle_events SET recorded_at = now() - interval '25 hours' WHERE id % 2 = 0`)
	prepares(c.Fixture)
	if got := said(t, claimEvents(c.Fixture)); got.LeftOut != 50+5_000 {
		t.Errorf("%d are left out", got.LeftOut)
	}
}

// However many recipients a tenant has, few batches of it are under way.
func TestFewBatchesOfATenantAreUnderWay(t *testing.T) {
	c := NewReplica(t)
	waitingEvents(c.Fixture, 1, "https://a.example/", "https://b.example/", "https://c.example/", "https://d.example/")
	first, second := claimEvents(c.Fixture), claimEvents(c.Fixture)
	if first == nil || second == nil || first.To.URL == second.To.URL || claimEvents(c.Fixture) != nil {
		t.Fatal("not two of four are under way")
	}
	answers(c.Fixture, first, notice.Answer{Arrival: notice.Unsent})
	if claimEvents(c.Fixture) == nil || claimEvents(c.Fixture) != nil {
		t.Error("an answer makes no room for one batch")
	}
	c.Freeze(c.Tenant, "a test")
	c.Exec(`UPDATE punctual.outbox SET held_until = now()`)
	if claimEvents(c.Fixture) != nil {
		t.Error("a frozen tenant tells")
	}
}

// A batch is the same until the recipient has taken it, or it is given up.
func TestABatchThatDoesNotArriveIsSentAgain(t *testing.T) {
	c := NewReplica(t)
	waitingEvents(c.Fixture, 3, Hook)
	first := claimEvents(c.Fixture)
	waitingEvents(c.Fixture, 3, Hook)
	for _, arrival := range []notice.Arrival{notice.Unknown, notice.PutOff, notice.Unsent, ""} {
		if arrival == "" { // its replica is lost
			c.Exec(`UPDATE punctual.outbox SET held_until = now()`)
		} else {
			answers(c.Fixture, first, notice.Answer{Arrival: arrival, RetryAfter: time.Minute})
			if left, err := c.Notices.CollectLifecycle(t.Context()); left || err != nil || claimEvents(c.Fixture) != nil {
				t.Errorf("%s: there is no pause, error %v", arrival, err)
			}
			prepares(c.Fixture)
		}
		if again := claimEvents(c.Fixture); again == nil || again.ID != first.ID || string(again.Body) != string(first.Body) {
			t.Fatalf("after %q the batch is %+v", arrival, again)
		}
	}
	c.WantCount(2, "failures", `SELECT failures FROM punctual.outbox`)
	_, waiting, _, err := c.Notices.ListNotices(t.Context(), c.Tenant, notices.Filter{})
	if err != nil || len(waiting) != 1 || waiting[0].URL != Hook || waiting[0].FailingSince == nil {
		t.Errorf("those that take nothing are %+v, error %v", waiting, err)
	}
	for range 3 {
		answers(c.Fixture, first, notice.Answer{Arrival: notice.Refused, Status: 400})
	}
	answers(c.Fixture, first, notice.Answer{Arrival: notice.Delivered}) // of another replica, too late
	prepares(c.Fixture)
	second := claimEvents(c.Fixture)
	if got := said(t, second); second.ID == first.ID || got.LeftOut != 3 || len(got.Events) != 3 {
		t.Errorf("after it was given up the batch is %+v", got)
	}
	c.Exec(`UPDATE punctual.outbox SET message = $1`, domain.NewRunID(time.Now().Add(-25*time.Hour)))
	second.ID = lineMessage(c.Fixture)
	answers(c.Fixture, second, notice.Answer{Arrival: notice.PutOff})
	c.WantCount(6, "events are left out", `SELECT left_out FROM punctual.outbox WHERE body IS NULL`)
	_, _, err = c.Notices.Forget(t.Context())
	Must(t, err)
	c.WantCount(1, "recipients are kept", `SELECT count(*) FROM punctual.outbox`)
	c.Exec(`UPDATE punctual.outbox SET held_until = now() - interval '9 days'`)
	_, _, err = c.Notices.Forget(t.Context())
	Must(t, err)
	c.WantCount(0, "recipients are kept", `SELECT count(*) FROM punctual.outbox`)
}

func lineMessage(c Fixture) uuid.UUID {
	c.T.Helper()
	return Value[uuid.UUID](c, `SELECT message FROM punctual.outbox`)
}
