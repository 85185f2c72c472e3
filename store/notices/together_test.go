package notices_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
)

// slackly makes a job tell a Slack channel of everything.
func slackly(d *jobspec.Definition) {
	d.Notify = []jobspec.Notify{{On: jobspec.Events, Format: jobspec.FormatSlack, URL: Hook}}
}

// While a recipient asks for a pause, everything joins what waits, and the next message names all jobs.
func TestJobsThatFailTogetherAreToldTogether(t *testing.T) {
	c := NewReplica(t)
	const jobs = 300
	name := func(i int) string { return fmt.Sprintf("job-%03d", i) }
	c.Create(name(0), Never, slackly)
	c.Dies(name(0))
	c.Tell()
	first, err := c.Notices.Claim(t.Context(), true)
	Must(t, err)
	if first == nil {
		t.Fatal("there is nothing to tell")
	}
	for i := range jobs - 1 {
		c.Create(name(i+1), Never, slackly)
	}
	c.Exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
		SELECT id, tenant, 1, 'failing', gen_random_uuid(), now() FROM punctual.jobs WHERE name <> $1`, name(0))
	c.Tell()
	c.Exec(`UPDATE punctual.outbox SET held_until = now() WHERE NOT under_way`)
	if m, err := c.Notices.Claim(t.Context(), true); err != nil || m != nil {
		t.Fatalf("a second message is under way: %v (%v)", m, err)
	}
	Must(t, c.Notices.Answered(t.Context(), *first, notice.Answer{
		Arrival: notice.PutOff, RetryAfter: 30 * time.Second, Status: 429,
	}))
	if m, err := c.Notices.Claim(t.Context(), true); err != nil || m != nil {
		t.Fatalf("the recipient is not left alone: %v (%v)", m, err)
	}
	c.WantCount(0, "a pause costs an attempt", `SELECT sum(failures) FROM punctual.outbox`)
	channel := told(c.Fixture, incidents{})
	if len(channel) != 1 || !strings.Contains(channel[0], "300 jobs are failing") {
		t.Fatalf("%d messages, the first %.200s", len(channel), strings.Join(channel, ""))
	}
	for i := range jobs {
		if !strings.Contains(channel[0], name(i)) {
			t.Errorf("%s is not named", name(i))
		}
	}
}

// A host that cannot be reached is one cause: one message that it cannot be reached, and one when it can.
func TestAHostThatIsDownIsToldOnce(t *testing.T) {
	c, world := withRecipients(t)
	jobs := []string{"a", "b", "c"}
	for _, job := range jobs {
		c.Create(job, Never, slackly, statefully)
	}
	var channel []string
	for _, job := range jobs { // each is told of before the next one fails
		cannotReach(c, job)
		channel = append(channel, told(c.Fixture, world)...)
	}
	if len(world.open()) != 2 {
		t.Errorf("open: %q", world.open())
	}
	for _, job := range slices.Backward(jobs) { // the first to answer is one that was not told of yet
		c.WellAgain(job)
		channel = append(channel, told(c.Fixture, world)...)
		if len(world.open()) != 0 {
			t.Errorf("still open: %q", world.open())
		}
	}
	if len(channel) != 2 || !strings.Contains(channel[0], "cannot be reached") ||
		!strings.Contains(channel[1], "can be reached again: 1 of 3 jobs recovered") {
		t.Errorf("the channel is told %q", channel)
	}
	c.WantCount(2*len(world), "messages to the others", `
		SELECT count(*) FROM punctual.notice_messages WHERE format <> 'slack'`)
}

// Late runs of many jobs are a message at once, and then one every five minutes.
func TestLateRunsOfManyJobsAreToldInDigests(t *testing.T) {
	c := NewReplica(t)
	const jobs = 60
	for i := range jobs {
		c.Create(fmt.Sprint("once-", i), Never, slackly)
	}
	var channel []string
	for i := range jobs {
		runsLate(c.Fixture, fmt.Sprint("once-", i))
		channel = append(channel, told(c.Fixture, incidents{})...)
	}
	if len(channel) != 1 {
		t.Fatalf("%d messages within five minutes", len(channel))
	}
	c.Later()
	channel = told(c.Fixture, incidents{})
	if len(channel) != 1 || !strings.Contains(channel[0], "59 runs of 59 jobs late") {
		t.Fatalf("%d messages, the first %.300s", len(channel), strings.Join(channel, ""))
	}
}

// Trouble that is over before it could be told is no incident, and a state replaces the one before it.
func TestALaterStateReplacesAnUnsentOne(t *testing.T) {
	c := NewReplica(t)
	c.Secret("key", "routing")
	c.Create("job", Never, statefully)
	c.Dies("job")
	c.Tell()
	c.WellAgain("job")
	c.WantHeard("")
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
}

// What waits for a recipient is told with what comes after it: nothing is lost of what happened, and to which runs.
func TestWhatWaitsIsToldWithWhatComesAfter(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	c.Dies("job")
	c.Tell()
	c.Later()
	c.Dies("job")
	c.WellAgain("job")
	c.Tell()
	c.WantCount(1, "rows keep their place",
		`SELECT count(*) FROM punctual.notice_states WHERE tell_at < now() - interval '4 min'`)
	if e := Digest(t, c.WantHeard("failing 1, dead 2, recovered 1")).Events[1]; len(e.Runs) != 2 {
		t.Errorf("of the dead runs it names %v", e.Runs)
	}
}

// Messages to people come ever slower while they follow each other. A minute without one begins anew.
func TestMessagesThatFollowEachOtherComeSlower(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, slackly)
	for _, want := range []string{"1 s", "2 s", "4 s", "1 s"} {
		if want == "1 s" {
			c.Exec(`UPDATE punctual.outbox SET delivered_at = now() - interval '1 min'`)
		}
		c.Dies("job")
		c.Later()
		told(c.Fixture, incidents{})
		c.WantCount(1, "recipients are held up for "+want, `SELECT count(*) FROM punctual.outbox
			WHERE pace = $1::text::interval`, want)
	}
}

// Nothing is kept of what a recipient believes that does not ask for recoveries.
func TestWithoutRecoveriesNothingStaysOpen(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Notify(Hook, jobspec.EventFailing, jobspec.EventDead))
	c.Dies("job")
	c.WantHeard("failing 1, dead 1")
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
}

// A frozen tenant's notices wait.
func TestNoticesOfAFrozenTenantWait(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	c.Dies("job")
	c.Exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'test' WHERE id = $1`, c.Tenant)
	c.WantHeard("")
	c.Exec(`UPDATE punctual.tenants SET frozen_at = NULL, frozen_by = NULL`)
	c.WantHeard("failing 1, dead 1")
}

// A message that a recipient refuses as it is does not hold up those after it for ever.
func TestARefusedMessageIsGivenUp(t *testing.T) {
	c := NewReplica(t)
	c.Create("bad", Never, Everything)
	c.Dies("bad")
	c.Tell()
	for range 5 {
		m := c.ClaimNotice()
		if m == nil {
			t.Fatal("it was given up too soon")
		}
		Must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Refused, Status: 400}))
	}
	c.Create("good", Never, Everything)
	c.Dies("good")
	if got := Digest(t, c.WantHeard("failing 1, dead 1")); got.Job != "good" {
		t.Errorf("told of %s", got.Job)
	}
}

// Jobs that failed together share an incident at PagerDuty. It says which of them are well again, and goes on for the
// others. What fails later has an incident of its own.
func TestAnIncidentOfManyJobsSaysWhichAreWell(t *testing.T) {
	c := NewReplica(t)
	c.Secret("key", "routing")
	hear := func() (all []pagerDutyEvent) {
		c.Later()
		for _, m := range c.HearsAll() {
			var e pagerDutyEvent
			Must(t, json.Unmarshal(m.Body, &e))
			all = append(all, e)
		}
		return all
	}
	const jobs = 12
	for i := range jobs {
		c.Create(fmt.Sprint("job-", i), Never, pager)
		c.Dies(fmt.Sprint("job-", i))
	}
	first := hear()
	if len(first) != 1 || !strings.HasPrefix(first[0].Payload.Summary, "12 jobs are failing since ") ||
		first[0].Payload.Component != "default" {
		t.Fatalf("told %+v", first)
	}
	c.Create("other", Never, pager)
	c.Dies("other")
	c.WellAgain("job-0")
	got := hear()
	if len(got) != 2 || got[0].Key != first[0].Key || got[1].Key == first[0].Key {
		t.Fatalf("told %+v", got)
	}
	if p := got[0].Payload; !strings.HasPrefix(p.Summary, "11 jobs are failing; job job-0 recovered (tenant default)") ||
		p.Severity != "critical" || len(p.Details.Jobs) != jobs {
		t.Errorf("told %+v", p)
	}
	c.Dies("job-1")
	got = hear()
	if len(got) != 1 || !strings.HasPrefix(got[0].Payload.Summary, "11 jobs are failing since ") ||
		len(got[0].Payload.Details.Jobs) != jobs-1 {
		t.Fatalf("told %+v", got)
	}
	for i := range jobs {
		c.WellAgain(fmt.Sprint("job-", i))
	}
	if got = hear(); len(got) != 1 || got[0].Action != "resolve" || got[0].Key != first[0].Key {
		t.Fatalf("told %+v", got)
	}
}

// pagerDutyEvent is what PagerDuty is sent.
type pagerDutyEvent struct {
	Action  string `json:"event_action"`
	Key     string `json:"dedup_key"`
	Payload struct {
		Summary, Severity, Component string
		Details                      notice.Subject `json:"custom_details"`
	}
}
