package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
)

// hearsAll sends messages until nothing is left to tell now, and returns their bodies. Nothing makes recipients wait.
func (c crud) hearsAll() (bodies []string) {
	c.t.Helper()
	c.tell()
	for {
		c.exec(`UPDATE punctual.notice_lines SET held_until = now()`)
		m, err := c.ClaimNotice(c.t.Context())
		must(c.t, err)
		if m == nil {
			return bodies
		}
		bodies = append(bodies, string(m.Body))
		must(c.t, c.Answered(c.t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	}
}

// slackly makes a job tell a Slack channel of everything.
func slackly(d *domain.Definition) {
	d.Notify = []domain.Notify{{On: domain.Events, Format: domain.FormatSlack, URL: hook}}
}

// While a recipient asks for a pause, everything joins the line, and the next message names all jobs.
func TestJobsThatFailTogetherAreToldTogether(t *testing.T) {
	c := newClaimer(t)
	const jobs = 300
	name := func(i int) string { return fmt.Sprintf("job-%03d", i) }
	c.create(name(0), never, slackly)
	c.dies(name(0))
	c.tell()
	first, err := c.ClaimNotice(t.Context())
	must(t, err)
	if first == nil {
		t.Fatal("there is nothing to tell")
	}
	for i := range jobs - 1 {
		c.create(name(i+1), never, slackly)
	}
	c.exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
		SELECT id, tenant, 1, 'failing', gen_random_uuid(), now() FROM punctual.jobs WHERE name <> $1`, name(0))
	c.tell()
	c.exec(`UPDATE punctual.notice_lines SET held_until = now() WHERE lease IS NULL`)
	if m, err := c.ClaimNotice(t.Context()); err != nil || m != nil {
		t.Fatalf("a second message is under way: %v (%v)", m, err)
	}
	must(t, c.Answered(t.Context(), *first, notice.Answer{
		Arrival: notice.PutOff, RetryAfter: 30 * time.Second, Status: 429,
	}))
	if m, err := c.ClaimNotice(t.Context()); err != nil || m != nil {
		t.Fatalf("the recipient is not left alone: %v (%v)", m, err)
	}
	c.wantCount(0, "a pause costs an attempt", `SELECT sum(failures) FROM punctual.notice_lines`)
	bodies := c.hearsAll()
	if len(bodies) != 1 || !strings.Contains(bodies[0], "300 jobs are failing") {
		t.Fatalf("%d messages, the first %.200s", len(bodies), strings.Join(bodies, ""))
	}
	for i := range jobs {
		if !strings.Contains(bodies[0], name(i)) {
			t.Errorf("%s is not named", name(i))
		}
	}
}

// A host that cannot be reached is one cause: one message that it cannot be reached, and one when it can.
func TestAHostThatIsDownIsToldOnce(t *testing.T) {
	c := newClaimer(t)
	c.secret("key", "routing")
	world, jobs := incidents{}, []string{"a", "b", "c"}
	for _, job := range jobs {
		c.create(job, never, slackly, statefully)
	}
	told := map[string][]string{}
	hear := func() {
		c.tell()
		for {
			c.exec(`UPDATE punctual.notice_lines SET held_until = now()`)
			m, err := c.ClaimNotice(t.Context())
			must(t, err)
			if m == nil {
				return
			}
			told[m.To.URL] = append(told[m.To.URL], string(m.Body))
			if m.To.URL != hook {
				world.take(t, *m)
			}
			must(t, c.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
		}
	}
	for _, job := range jobs { // each is told of before the next one fails
		o := buried(c.begun(job))
		o.Reason, o.HTTPStatus, o.Error = domain.ReasonConnect, 0, "connection refused"
		c.finish(o)
		hear()
	}
	if len(world.open()) != 2 {
		t.Errorf("open: %q", world.open())
	}
	for _, job := range jobs {
		c.wellAgain(job)
		hear()
	}
	if len(world.open()) != 0 {
		t.Errorf("still open: %q", world.open())
	}
	for url, bodies := range told {
		if len(bodies) != 2 {
			t.Fatalf("%s was told %q", url, bodies)
		}
	}
	if all := told[hook]; !strings.Contains(all[0], "cannot be reached") ||
		!strings.Contains(all[1], "can be reached again: 1 of 3 jobs recovered") {
		t.Errorf("the channel was told %q", all)
	}
}

// Late runs of many jobs are a message at once, and then one every five minutes.
func TestLateRunsOfManyJobsAreToldInDigests(t *testing.T) {
	c := newClaimer(t)
	const jobs = 60
	for i := range jobs {
		c.create(fmt.Sprint("once-", i), never, slackly)
	}
	var bodies []string
	for i := range jobs {
		c.exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
			SELECT id, tenant, 1, 'late', gen_random_uuid(), now() FROM punctual.jobs WHERE name = $1`,
			fmt.Sprint("once-", i))
		bodies = append(bodies, c.hearsAll()...)
	}
	if len(bodies) != 1 {
		t.Fatalf("%d messages within five minutes", len(bodies))
	}
	c.later()
	bodies = c.hearsAll()
	if len(bodies) != 1 || !strings.Contains(bodies[0], "59 runs of 59 jobs late") {
		t.Fatalf("%d messages, the first %.300s", len(bodies), strings.Join(bodies, ""))
	}
}

// Trouble that is over before it could be told is no incident, and a state replaces the one before it.
func TestALaterStateReplacesAnUnsentOne(t *testing.T) {
	c := newClaimer(t)
	c.secret("key", "routing")
	c.create("job", never, statefully)
	c.dies("job")
	c.tell()
	c.wellAgain("job")
	if bodies := c.hearsAll(); len(bodies) != 0 {
		t.Errorf("told of %q", bodies)
	}
	c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_subjects`)
}

// A frozen tenant's notices wait.
func TestNoticesOfAFrozenTenantWait(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.dies("job")
	c.exec(`UPDATE punctual.tenants SET frozen_at = now(), frozen_by = 'test' WHERE id = $1`, c.tenant)
	c.wantHeard("")
	c.exec(`UPDATE punctual.tenants SET frozen_at = NULL, frozen_by = NULL`)
	c.wantHeard("failing 1, dead 1")
}

// A message that a recipient refuses as it is does not hold up those after it for ever.
func TestARefusedMessageIsGivenUp(t *testing.T) {
	c := newClaimer(t)
	c.create("bad", never, everything)
	c.dies("bad")
	c.tell()
	for range 5 {
		c.exec(`UPDATE punctual.notice_lines SET held_until = now()`)
		m, err := c.ClaimNotice(t.Context())
		must(t, err)
		if m == nil {
			t.Fatal("it was given up too soon")
		}
		must(t, c.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Refused, Status: 400}))
	}
	c.create("good", never, everything)
	c.dies("good")
	if got := news(t, c.wantHeard("failing 1, dead 1")); got.Job != "good" {
		t.Errorf("told of %s", got.Job)
	}
}
