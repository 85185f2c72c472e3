package notices_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/definitions"
	"punctual/store/notices"
)

// runsLate makes notices of a late run of each job, due two minutes ago.
func runsLate(c Fixture, jobs ...string) {
	c.T.Helper()
	for _, job := range jobs {
		c.Exec(`
			WITH late AS (
			    INSERT INTO punctual.runs (id, job_id, tenant, job_version, lane, trigger, scheduled_for, due_at, status, late)
			    SELECT $1, j.id, j.tenant, 1, 7, 'manual', now(), now() - interval '2 min', 'pending', true
			    FROM punctual.jobs j WHERE j.name = $2 AND j.tenant = $3
			    RETURNING id, job_id)
			INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
			SELECT job_id, $3, 1, 'late', id, now() FROM late`, domain.NewRunID(time.Now()), job, c.Tenant)
	}
}

// told sends what waits, has the model of incidents take it, and returns the bodies for the channel.
func told(c Fixture, world incidents) (channel []string) {
	c.T.Helper()
	for _, m := range c.HearsAll() {
		if m.To.Format == jobspec.FormatSlack {
			channel = append(channel, string(m.Body))
		} else {
			world.take(c.T, m)
		}
	}
	return channel
}

// wantTold fails the test unless the channel is told what has these parts, a message each, and the others then hold so
// many incidents for open.
func wantTold(c Fixture, world incidents, open int, parts ...string) {
	c.T.Helper()
	channel := told(c, world)
	for i, part := range parts {
		if len(channel) != len(parts) || !strings.Contains(channel[i], part) {
			c.T.Errorf("the channel is told %q, want %q", channel, parts)
			break
		}
	}
	if len(parts) == 0 && len(channel) > 0 {
		c.T.Errorf("the channel is told %q", channel)
	}
	if got := world.open(); len(got) != open {
		c.T.Errorf("open: %q, want %d", got, open)
	}
}

// withRecipients returns a replica for jobs that tell PagerDuty, too, and what its recipients hold for open.
func withRecipients(t *testing.T) (Replica, incidents) {
	t.Helper()
	c := NewReplica(t)
	c.Secret("key", "routing")
	return c, incidents{}
}

// unreachable makes jobs whose host cannot be reached, of which a channel and two others are told.
func unreachable(c Replica, jobs ...string) {
	c.T.Helper()
	for _, job := range jobs {
		c.Create(job, Never, slackly, statefully)
		cannotReach(c, job)
	}
}

// cannotReach has a run of a job die because its host cannot be reached.
func cannotReach(c Replica, job string) {
	c.T.Helper()
	o := Buried(c.Begun(job))
	o.Reason, o.HTTPStatus, o.Error = domain.ReasonConnect, 0, "connection refused"
	c.Finish(o)
}

// A limit that makes runs late is one subject: it is told at once, and when it is over, with all jobs beneath it.
func TestALimitThatMakesRunsLateIsToldOnceAndItsEndOnce(t *testing.T) {
	c, world := withRecipients(t)
	const jobs = 40
	var channel []string
	for i := range jobs {
		c.Limited(true)
		name := fmt.Sprintf("once-%02d", i)
		c.Create(name, Never, slackly, statefully)
		runsLate(c.Fixture, name)
		channel = append(channel, told(c.Fixture, world)...)
	}
	if len(channel) != 1 || !strings.Contains(channel[0], "1 run of 1 job late since ") ||
		!strings.Contains(channel[0], ": default is at max_runs_per_second (5)") {
		t.Fatalf("while it lasts, the channel is told %q", channel)
	}
	if open := world.open(); len(open) != 2 || !strings.Contains(fmt.Sprint(open), "limit:max_runs_per_second") {
		t.Errorf("open: %q", open)
	}
	c.Later()
	c.Limited(true)
	wantTold(c.Fixture, world, 2, "39 runs of 39 jobs late since ")
	runsLate(c.Fixture, "once-07")
	c.Later()
	c.Limited(false)
	wantTold(c.Fixture, world, 0, "max_runs_per_second holds back no more runs; 1 run of 1 job late")
	c.Later()
	wantTold(c.Fixture, world, 0)
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
	c.WantCount(0, "recipients are looked at",
		`SELECT count(*) FROM punctual.outbox WHERE due_at IS NOT NULL OR causes <> '{}'`)
}

// What joins while a message about the same cause is under way is told five minutes after that message.
func TestLateRunsThatComeDuringAMessageWait(t *testing.T) {
	t.Parallel()
	for name, limited := range map[string]bool{"a limit": true, "no cause": false} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			if limited {
				c.Limited(true)
			}
			for _, job := range []string{"first", "second"} {
				c.Create(job, Never, slackly)
			}
			runsLate(c.Fixture, "first")
			c.Tell()
			m := c.ClaimNotice()
			runsLate(c.Fixture, "second")
			c.Tell()
			Must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
			wantTold(c.Fixture, incidents{}, 0)
			c.Later()
			wantTold(c.Fixture, incidents{}, 0, "1 run of 1 job late")
		})
	}
}

// A message of a replica that stood still arrives after later ones. How things are is told again.
func TestAMessageThatArrivesLateIsFollowedByTheTruth(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		begin, after func(c Replica)
		open         int
	}{
		{
			"a limit that is over", func(c Replica) { c.Limited(true); runsLate(c.Fixture, "job") },
			func(c Replica) { c.Later(); c.Limited(false) }, 0,
		},
		{"a job that is well", func(c Replica) { c.Dies("job") }, func(c Replica) { c.WellAgain("job") }, 0},
		{"a job that is not", func(c Replica) { c.Dies("job") }, func(Replica) {}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.Create("job", Never, pager)
			test.begin(c)
			c.Tell()
			standing := c.ClaimNotice()
			wantTold(c.Fixture, world, 1)
			test.after(c)
			wantTold(c.Fixture, world, test.open)
			world.take(t, *standing)
			Must(t, c.Notices.Answered(t.Context(), *standing, notice.Answer{Arrival: notice.Delivered}))
			wantTold(c.Fixture, world, test.open)
			c.WantCount(0, "causes are left", `SELECT count(*) FROM punctual.outbox WHERE causes <> '{}'`)
		})
	}
}

// What a recipient refuses to be told of a cause is given up, and its recipient is not looked at for ever.
func TestARefusedMessageAboutACauseIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"its begin": false, "its end": true} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Limited(true)
			c.Create("job", Never, slackly)
			runsLate(c.Fixture, "job")
			c.Tell()
			if ends {
				wantTold(c.Fixture, incidents{}, 0, "1 run of 1 job late")
				c.Later()
				c.Limited(false)
			}
			for range 5 {
				Must(t, c.Notices.Answered(t.Context(), *c.ClaimNotice(), notice.Answer{Arrival: notice.Refused, Status: 400}))
			}
			c.Later()
			wantTold(c.Fixture, incidents{}, 0)
			c.WantCount(0, "recipients are looked at",
				`SELECT count(*) FROM punctual.outbox WHERE due_at IS NOT NULL OR causes <> '{}'`)
		})
	}
}

// What is over when it is told is told once to people. Where it opens something, that is closed five minutes later.
func TestAFreezeAndLateRunsWithoutACauseOpenAndClose(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"a freeze": true, "no cause": false} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.Create("job", Never, slackly, statefully)
			if frozen {
				c.Freeze(c.Tenant, "the warehouse moves")
				c.Exec(`UPDATE punctual.tenants SET frozen_at = now() - interval '10 minutes' WHERE frozen_at IS NOT NULL`)
				c.Unfreeze(c.Tenant)
			}
			var channel []string
			want := "1 run of 1 job late since "
			runsLate(c.Fixture, "job")
			if frozen { // all that it held up comes in within moments, and is told together
				want = "2 runs of 2 jobs late: the tenant was frozen from "
				channel = told(c.Fixture, world)
				c.Create("another", Never, slackly, statefully)
				runsLate(c.Fixture, "another")
				c.Tell()
				c.Pass("30 s")
			}
			channel = append(channel, told(c.Fixture, world)...)
			if len(channel) != 1 || !strings.Contains(channel[0], want) {
				t.Fatalf("the channel is told %q", channel)
			}
			if frozen != strings.Contains(channel[0], "the tenant was frozen from") {
				t.Errorf("the channel is told %q", channel)
			}
			if open := world.open(); len(open) != 2 {
				t.Errorf("open: %q", open)
			}
			c.Later()
			wantTold(c.Fixture, world, 0)
			c.WantCount(0, "recipients are looked at", `SELECT count(*) FROM punctual.outbox WHERE due_at IS NOT NULL`)
		})
	}
}

// A host's incident is over when the host answers one job. Jobs that run seldom do not keep it open, and their first
// success is not told. What fails although the host answers is told apart.
func TestAHostsIncidentEndsWhenTheHostIsWell(t *testing.T) {
	c, world := withRecipients(t)
	unreachable(c, "often", "seldom", "broken")
	wantTold(c.Fixture, world, 2, "cannot be reached")
	c.Later()
	c.WellAgain("often")
	wantTold(c.Fixture, world, 0, "can be reached again: 1 of 3 jobs recovered")
	c.WellAgain("seldom")
	wantTold(c.Fixture, world, 0)
	c.Dies("broken")
	wantTold(c.Fixture, world, 2, "Job broken has dead runs")
	if open := fmt.Sprint(world.open()); !strings.Contains(open, "job:broken") {
		t.Errorf("open: %s", open)
	}
}

// The incident of a host goes on if the success of a job does not say that the host is well.
func TestAHostIsNotWellBecauseAJobIs(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(c Replica){
		"another job cannot reach it after that": func(c Replica) {
			c.WellAgain("a")
			cannotReach(c, "b")
		},
		"the job calls another host by now": func(c Replica) {
			c.Edit("a", func(d *jobspec.Definition) { d.Target.URL = "https://elsewhere.example/" })
			c.WellAgain("a")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			unreachable(c, "a", "b")
			told(c.Fixture, world)
			c.Later()
			happens(c)
			wantTold(c.Fixture, world, 2, ": 1 job affected; job a recovered")
		})
	}
}

// A job that fails with an answer of the host ends the host's incident too, and has one of its own.
func TestAHostThatAnswersWithErrorsIsReached(t *testing.T) {
	c, world := withRecipients(t)
	unreachable(c, "job")
	told(c.Fixture, world)
	c.Later()
	c.Dies("job")
	wantTold(c.Fixture, world, 2, "can be reached again", "Job job has dead runs")
	if open := fmt.Sprint(world.open()); strings.Contains(open, "host") || !strings.Contains(open, "job:job") {
		t.Errorf("open: %s", open)
	}
	c.WellAgain("job")
	wantTold(c.Fixture, world, 0, "Job job recovered")
}

// An outage of a recipient is an error in the log when it begins, whatever is tried meanwhile, and its end is told.
func TestAnOutageOfARecipientIsLoggedOnce(t *testing.T) {
	c := NewReplica(t)
	var log bytes.Buffer
	notifier := notices.NewNotifier(c.DB, definitions.New(0, 0, nil), c.Aside, notices.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	c.Create("job", Never, Everything)
	c.Dies("job")
	c.Tell()
	for _, a := range []notice.Answer{
		{Arrival: notice.Unknown, Status: 500},
		{Arrival: notice.PutOff, Status: 429},
		{Arrival: notice.Unsent, Status: 404},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Refused, Status: 400},
		{Arrival: notice.Delivered, Status: 200},
	} {
		c.Exec(`UPDATE punctual.outbox SET held_until = now()`)
		m, err := notifier.Claim(t.Context(), false)
		Must(t, err)
		if m == nil {
			c.Dies("job") // what was refused is given up
			c.Later()
			c.Tell()
			if m, err = notifier.Claim(t.Context(), false); err != nil || m == nil {
				t.Fatalf("nothing is to be sent (%v)", err)
			}
		}
		Must(t, notifier.Answered(t.Context(), *m, a))
	}
	text := log.String()
	if strings.Count(text, "takes none") != 1 || strings.Count(text, "takes notices again") != 1 ||
		strings.Count(text, "level=ERROR") != 2 {
		t.Errorf("the log says %s", text)
	}
}

// Of a job's labels, notices carry those that the operator allows.
func TestNoticesCarryTheLabelsThatAreAllowed(t *testing.T) {
	c := NewReplica(t)
	c.Notices = notices.NewNotifier(c.DB, definitions.New(0, 0, nil), c.Aside, notices.Options{
		Log: slog.New(slog.DiscardHandler), Labels: []string{"team", "tier"},
	})
	c.Create("job", Never, Everything, func(d *jobspec.Definition) {
		d.Labels = map[string]string{"team": "money", "customer": "a secret"}
	})
	c.Dies("job")
	if got := Digest(t, c.WantHeard("failing 1, dead 1")).Labels; len(got) != 1 || got["team"] != "money" {
		t.Errorf("labels %v", got)
	}
}
