package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/definitions"
	"punctual/store/notices"
)

// limited sets whether the tenant is at a limit now. If it is not, it was until a minute ago.
func (c crud) limited(is bool) {
	c.t.Helper()
	c.exec(`UPDATE punctual.tenants SET max_runs_per_second = 5 WHERE id = $1`, c.tenant)
	c.exec(`
		INSERT INTO punctual.tenant_usage AS u (tenant, held_by, held_since, held_at)
		VALUES ($1, 'max_runs_per_second', now() - interval '1 h', now() - CASE WHEN $2 THEN '0' ELSE '1 min' END::interval)
		ON CONFLICT (tenant) DO UPDATE SET held_by = excluded.held_by, held_since = excluded.held_since,
		    held_at = excluded.held_at`, c.tenant, is)
}

// runsLate makes notices of a late run of each job, due two minutes ago.
func (c crud) runsLate(jobs ...string) {
	c.t.Helper()
	for _, job := range jobs {
		c.exec(`
			WITH late AS (
			    INSERT INTO punctual.runs (id, job_id, tenant, job_version, lane, trigger, scheduled_for, due_at, status, late)
			    SELECT $1, j.id, j.tenant, 1, 7, 'manual', now(), now() - interval '2 min', 'pending', true
			    FROM punctual.jobs j WHERE j.name = $2 AND j.tenant = $3
			    RETURNING id, job_id)
			INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
			SELECT job_id, $3, 1, 'late', id, now() FROM late`, domain.NewRunID(time.Now()), job, c.tenant)
	}
}

// told sends what waits, has the model of incidents take it, and returns the bodies for the channel.
func (c crud) told(world incidents) (channel []string) {
	c.t.Helper()
	for _, m := range c.hearsAll() {
		if m.To.Format == domain.FormatSlack {
			channel = append(channel, string(m.Body))
		} else {
			world.take(c.t, m)
		}
	}
	return channel
}

// wantTold fails the test unless the channel is told what has these parts, a message each, and the others then hold so
// many incidents for open.
func (c crud) wantTold(world incidents, open int, parts ...string) {
	c.t.Helper()
	channel := c.told(world)
	for i, part := range parts {
		if len(channel) != len(parts) || !strings.Contains(channel[i], part) {
			c.t.Errorf("the channel is told %q, want %q", channel, parts)
			break
		}
	}
	if len(parts) == 0 && len(channel) > 0 {
		c.t.Errorf("the channel is told %q", channel)
	}
	if got := world.open(); len(got) != open {
		c.t.Errorf("open: %q, want %d", got, open)
	}
}

// withRecipients returns a claimer for jobs that tell PagerDuty, too, and what its recipients hold for open.
func withRecipients(t *testing.T) (claimer, incidents) {
	t.Helper()
	c := newClaimer(t)
	c.secret("key", "routing")
	return c, incidents{}
}

// unreachable makes jobs whose host cannot be reached, of which a channel and two others are told.
func (c claimer) unreachable(jobs ...string) {
	c.t.Helper()
	for _, job := range jobs {
		c.create(job, never, slackly, statefully)
		c.cannotReach(job)
	}
}

// cannotReach has a run of a job die because its host cannot be reached.
func (c claimer) cannotReach(job string) {
	c.t.Helper()
	o := buried(c.begun(job))
	o.Reason, o.HTTPStatus, o.Error = domain.ReasonConnect, 0, "connection refused"
	c.finish(o)
}

// A limit that makes runs late is one subject: it is told at once, and when it is over, with all jobs beneath it.
func TestALimitThatMakesRunsLateIsToldOnceAndItsEndOnce(t *testing.T) {
	c, world := withRecipients(t)
	c.limited(true)
	const jobs = 40
	var channel []string
	for i := range jobs {
		name := fmt.Sprintf("once-%02d", i)
		c.create(name, never, slackly, statefully)
		c.runsLate(name)
		channel = append(channel, c.told(world)...)
	}
	if len(channel) != 1 || !strings.Contains(channel[0], "1 run of 1 job late since ") ||
		!strings.Contains(channel[0], ": default is at max_runs_per_second (5)") {
		t.Fatalf("while it lasts, the channel is told %q", channel)
	}
	if open := world.open(); len(open) != 2 || !strings.Contains(fmt.Sprint(open), "limit:max_runs_per_second") {
		t.Errorf("open: %q", open)
	}
	c.later()
	c.limited(true)
	c.wantTold(world, 2, "39 runs of 39 jobs late since ")
	c.runsLate("once-07")
	c.later()
	c.limited(false)
	c.wantTold(world, 0, "max_runs_per_second holds back no more runs; 1 run of 1 job late")
	c.later()
	c.wantTold(world, 0)
	c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_subjects`)
	c.wantCount(0, "lines are looked at", `SELECT count(*) FROM punctual.notice_lines WHERE due_at IS NOT NULL OR causes <> '{}'`)
}

// What joins while a message about the same cause is under way is told five minutes after that message.
func TestLateRunsThatComeDuringAMessageWait(t *testing.T) {
	for name, limited := range map[string]bool{"a limit": true, "no cause": false} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			if limited {
				c.limited(true)
			}
			for _, job := range []string{"first", "second"} {
				c.create(job, never, slackly)
			}
			c.runsLate("first")
			c.tell()
			m := c.claimNotice()
			c.runsLate("second")
			c.tell()
			must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
			c.wantTold(incidents{}, 0)
			c.later()
			c.wantTold(incidents{}, 0, "1 run of 1 job late")
		})
	}
}

// A message of a replica that stood still arrives after later ones. How things are is told again.
func TestAMessageThatArrivesLateIsFollowedByTheTruth(t *testing.T) {
	for _, test := range []struct {
		name         string
		begin, after func(c claimer)
		open         int
	}{
		{
			"a limit that is over", func(c claimer) { c.limited(true); c.runsLate("job") },
			func(c claimer) { c.later(); c.limited(false) }, 0,
		},
		{"a job that is well", func(c claimer) { c.dies("job") }, func(c claimer) { c.wellAgain("job") }, 0},
		{"a job that is not", func(c claimer) { c.dies("job") }, func(claimer) {}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.create("job", never, pager)
			test.begin(c)
			c.tell()
			standing := c.claimNotice()
			c.wantTold(world, 1)
			test.after(c)
			c.wantTold(world, test.open)
			world.take(t, *standing)
			must(t, c.Notices.Answered(t.Context(), *standing, notice.Answer{Arrival: notice.Delivered}))
			c.wantTold(world, test.open)
			c.wantCount(0, "causes are left", `SELECT count(*) FROM punctual.notice_lines WHERE causes <> '{}'`)
		})
	}
}

// What a recipient refuses to be told of a cause is given up, and its line is not looked at for ever.
func TestARefusedMessageAboutACauseIsGivenUp(t *testing.T) {
	for name, ends := range map[string]bool{"its begin": false, "its end": true} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.limited(true)
			c.create("job", never, slackly)
			c.runsLate("job")
			c.tell()
			if ends {
				c.wantTold(incidents{}, 0, "1 run of 1 job late")
				c.later()
				c.limited(false)
			}
			for range 5 {
				must(t, c.Notices.Answered(t.Context(), *c.claimNotice(), notice.Answer{Arrival: notice.Refused, Status: 400}))
			}
			c.later()
			c.wantTold(incidents{}, 0)
			c.wantCount(0, "lines are looked at",
				`SELECT count(*) FROM punctual.notice_lines WHERE due_at IS NOT NULL OR causes <> '{}'`)
		})
	}
}

// What is over when it is told is told once to people. Where it opens something, that is closed five minutes later.
func TestAFreezeAndLateRunsWithoutACauseOpenAndClose(t *testing.T) {
	for name, frozen := range map[string]bool{"a freeze": true, "no cause": false} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.create("job", never, slackly, statefully)
			if frozen {
				c.freeze(c.tenant, "the warehouse moves")
				c.exec(`UPDATE punctual.tenants SET frozen_at = now() - interval '10 minutes' WHERE frozen_at IS NOT NULL`)
				c.unfreeze(c.tenant)
			}
			var channel []string
			want := "1 run of 1 job late since "
			c.runsLate("job")
			if frozen { // all that it held up comes in within moments, and is told together
				want = "2 runs of 2 jobs late: the tenant was frozen from "
				channel = c.told(world)
				c.create("another", never, slackly, statefully)
				c.runsLate("another")
				c.tell()
				c.pass("30 s")
			}
			channel = append(channel, c.told(world)...)
			if len(channel) != 1 || !strings.Contains(channel[0], want) {
				t.Fatalf("the channel is told %q", channel)
			}
			if frozen != strings.Contains(channel[0], "the tenant was frozen from") {
				t.Errorf("the channel is told %q", channel)
			}
			if open := world.open(); len(open) != 2 {
				t.Errorf("open: %q", open)
			}
			c.later()
			c.wantTold(world, 0)
			c.wantCount(0, "lines are looked at", `SELECT count(*) FROM punctual.notice_lines WHERE due_at IS NOT NULL`)
		})
	}
}

// A host's incident is over when the host answers one job. Jobs that run seldom do not keep it open, and their first
// success is no news. What fails although the host answers is told apart.
func TestAHostsIncidentEndsWhenTheHostIsWell(t *testing.T) {
	c, world := withRecipients(t)
	c.unreachable("often", "seldom", "broken")
	c.wantTold(world, 2, "cannot be reached")
	c.later()
	c.wellAgain("often")
	c.wantTold(world, 0, "can be reached again: 1 of 3 jobs recovered")
	c.wellAgain("seldom")
	c.wantTold(world, 0)
	c.dies("broken")
	c.wantTold(world, 2, "Job broken has dead runs")
	if open := fmt.Sprint(world.open()); !strings.Contains(open, "job:broken") {
		t.Errorf("open: %s", open)
	}
}

// The incident of a host goes on if the success of a job does not say that the host is well.
func TestAHostIsNotWellBecauseAJobIs(t *testing.T) {
	for name, happens := range map[string]func(c claimer){
		"another job cannot reach it after that": func(c claimer) {
			c.wellAgain("a")
			c.cannotReach("b")
		},
		"the job calls another host by now": func(c claimer) {
			c.edit("a", func(d *domain.Definition) { d.Target.URL = "https://elsewhere.example/" })
			c.wellAgain("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.unreachable("a", "b")
			c.told(world)
			c.later()
			happens(c)
			c.wantTold(world, 2, ": 1 job affected; job a recovered")
		})
	}
}

// A job that fails with an answer of the host ends the host's incident too, and has one of its own.
func TestAHostThatAnswersWithErrorsIsReached(t *testing.T) {
	c, world := withRecipients(t)
	c.unreachable("job")
	c.told(world)
	c.later()
	c.dies("job")
	c.wantTold(world, 2, "can be reached again", "Job job has dead runs")
	if open := fmt.Sprint(world.open()); strings.Contains(open, "host") || !strings.Contains(open, "job:job") {
		t.Errorf("open: %s", open)
	}
	c.wellAgain("job")
	c.wantTold(world, 0, "Job job recovered")
}

// An outage of a recipient is an error in the log when it begins, whatever is tried meanwhile, and its end is told.
func TestAnOutageOfARecipientIsLoggedOnce(t *testing.T) {
	c := newClaimer(t)
	var log bytes.Buffer
	teller := notices.NewTeller(c.DB, definitions.New(0, 0), notices.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	c.create("job", never, everything)
	c.dies("job")
	c.tell()
	for _, a := range []notice.Answer{
		{Arrival: notice.Unknown, Status: 500},
		{Arrival: notice.PutOff, Status: 429},
		{Arrival: notice.Unsent, Status: 404},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Delivered, Status: 200},
	} {
		c.exec(`UPDATE punctual.notice_lines SET held_until = now()`)
		m, err := teller.ClaimNotice(t.Context())
		must(t, err)
		if m == nil {
			c.dies("job") // what was refused is given up
			c.later()
			c.tell()
			if m, err = teller.ClaimNotice(t.Context()); err != nil || m == nil {
				t.Fatalf("nothing is to be sent (%v)", err)
			}
		}
		must(t, teller.Answered(t.Context(), *m, a))
	}
	text := log.String()
	if strings.Count(text, "takes none") != 1 || strings.Count(text, "takes notices again") != 1 ||
		strings.Count(text, "level=ERROR") != 2 {
		t.Errorf("the log says %s", text)
	}
}

// Of a job's labels, notices carry those that the operator allows.
func TestNoticesCarryTheLabelsThatAreAllowed(t *testing.T) {
	c := newClaimer(t)
	c.Notices = notices.NewTeller(c.DB, definitions.New(0, 0), notices.Options{
		Log: slog.New(slog.DiscardHandler), Labels: []string{"team", "tier"},
	})
	c.create("job", never, everything, func(d *domain.Definition) {
		d.Labels = map[string]string{"team": "money", "customer": "a secret"}
	})
	c.dies("job")
	if got := news(t, c.wantHeard("failing 1, dead 1")).Labels; len(got) != 1 || got["team"] != "money" {
		t.Errorf("labels %v", got)
	}
}
