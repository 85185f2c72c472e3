package notices_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/definitions"
	"punctual/store/notices"
)

// ends has the ends told of incidents that nobody ends, and checks how many there are.
func ends(c Fixture, want int) {
	c.T.Helper()
	n, left, err := c.Notices.EndIncidents(c.T.Context())
	Must(c.T, err)
	if n != want || left {
		c.T.Errorf("%d incidents end, want %d (left: %t)", n, want, left)
	}
}

// Trouble that nobody will tell the end of is over for its recipients, and they are told why.
func TestTroubleThatNobodyEndsIsOver(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, says string
		ends       int // of three recipients
		change     func(c Replica)
		open       bool // all the same
	}{
		{"nothing changed", "", 0, func(Replica) {}, true},
		{"its job is deleted", "Job job was deleted", 3, func(c Replica) { c.DeleteJob("job") }, false},
		{"its job is paused", "Job job is paused", 3, func(c Replica) { c.Pause("job") }, false},
		{"its job is paused for an hour", "", 0, func(c Replica) {
			c.PauseWith("job", "", new(c.Clock().Add(time.Hour)))
		}, true},
		{"its job has failed since it was paused", "", 0, func(c Replica) {
			c.Pause("job")
			c.Dies("job")
		}, true},
		{"its job has a run that waits", "", 0, func(c Replica) {
			c.Trigger("job")
			c.Pause("job")
		}, true},
		{"the recipients were removed", "Job job no longer tells of recoveries", 3, func(c Replica) {
			c.Edit("job", TellsNobody)
		}, false},
		{"recoveries are no longer told", "Job job no longer tells of recoveries", 3, func(c Replica) {
			c.Edit("job", func(d *jobspec.Definition) {
				d.Notify = slices.Clone(d.Notify)
				for i := range d.Notify {
					d.Notify[i].On = []jobspec.Event{jobspec.EventFailing, jobspec.EventDead}
				}
			})
		}, false},
		{"its tenant is deleted", "Job job was deleted with the tenant", 3, func(c Replica) {
			c.DeleteJob("job")
			c.Exec(`UPDATE punctual.tenants SET deleted_at = now() WHERE id = $1`, c.Tenant)
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.Create("job", Never, slackly, statefully)
			c.Dies("job")
			wantTold(c.Fixture, world, 3, "Job job has dead runs")
			c.Later()
			test.change(c)
			ends(c.Fixture, test.ends)
			channel := strings.Join(told(c.Fixture, world), "\n")
			if open := world.open(); test.open != (len(open) == 3) || !test.open && len(open) > 0 {
				t.Errorf("open: %q", open)
			}
			if test.says != "" && strings.Count(channel, `"text":"`+test.says) != 1+1 {
				t.Errorf("the channel is told %q", channel)
			}
			if test.open {
				return
			}
			c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
			ends(c.Fixture, 0)
		})
	}
}

// The end of trouble is told also if it comes while a message about the trouble is under way.
func TestAnEndThatComesDuringAMessageIsTold(t *testing.T) {
	c, world := withRecipients(t)
	c.Create("job", Never, pager)
	c.Dies("job")
	c.Tell()
	m := c.ClaimNotice()
	c.DeleteJob("job")
	ends(c.Fixture, 1)
	world.take(t, *m)
	Must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	wantTold(c.Fixture, world, 0)
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
}

// A job that fails again after its pause is told of as one that was well.
func TestAJobThatFailsAfterItsPauseIsToldOfAgain(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Notify(Hook, jobspec.EventFailing, jobspec.EventRecovered))
	c.Dies("job")
	c.WantHeard("failing 1")
	c.Pause("job")
	ends(c.Fixture, 1)
	c.WantHeard("ended 1")
	c.Resumed("job")
	c.Later()
	c.Dies("job")
	c.WantHeard("failing 1")
}

// A host's incident goes on while other jobs cannot reach it, and says which do not count any more.
func TestADeletedJobLeavesItsHostsIncident(t *testing.T) {
	c, world := withRecipients(t)
	unreachable(c, "a", "b")
	told(c.Fixture, world)
	c.Later()
	c.DeleteJob("a")
	ends(c.Fixture, 3)
	wantTold(c.Fixture, world, 2, "1 job affected; job a was deleted")
	c.Later()
	c.DeleteJob("b")
	ends(c.Fixture, 3)
	wantTold(c.Fixture, world, 0, "no job is left to tell whether ")
}

// Alertmanager knows a job by its name and labels. Trouble that it knows by others than the job has now is over.
func TestAJobsTroubleIsOneWhateverItsNameAndLabels(t *testing.T) {
	c, world := withRecipients(t)
	c.Notices = notices.NewNotifier(c.DB, definitions.New(0, 0, nil), c.Aside, notices.Options{
		Log: slog.New(slog.DiscardHandler), Labels: []string{"team"},
	})
	labelled := func(name, team string) Option {
		return func(d *jobspec.Definition) { d.Name, d.Labels = name, map[string]string{"team": team} }
	}
	c.Create("old", Never, statefully, labelled("old", "money"))
	c.Dies("old")
	told(c.Fixture, world)
	if open := fmt.Sprint(world.open()); !strings.Contains(open, "job:old") || !strings.Contains(open, "team:money") {
		t.Fatalf("open: %s", open)
	}
	c.Edit("old", labelled("new", "cards"))
	c.Later()
	c.Dies("new")
	told(c.Fixture, world)
	if open := fmt.Sprint(world.open()); strings.Contains(open, "job:old") || !strings.Contains(open, "job:new") {
		t.Errorf("open: %s", open)
	}
	c.Edit("new", labelled("newest", "cards"))
	c.Later()
	c.WellAgain("newest")
	wantTold(c.Fixture, world, 0)
}

// The secrets of a deleted tenant stay until its recipients know that its trouble is over, for a day at most. So do
// its recipients.
func TestADeletedTenantsRecipientsAreToldTheEnd(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"a recipient that takes it": true, "one that takes nothing": false} {
		t.Run(name, func(t *testing.T) {
			c := NewReplica(t)
			c.Tenant = c.NewTenant("other").ID
			c.Secret("key", "routing")
			c.Create("job", Never, statefully)
			c.Dies("job")
			world := incidents{}
			told(c.Fixture, world)
			c.DeleteJob("job")
			_, err := c.Tenants.DeleteTenant(t.Context(), "other")
			Must(t, err)
			secrets := func() int { return c.Count(`SELECT count(*) FROM punctual.secrets`) }
			forget := func() {
				_, _, notices := c.Notices.Forget(t.Context())
				_, _, secrets := c.Secrets.ForgetOfDeleted(t.Context())
				Must(t, notices)
				Must(t, secrets)
			}
			forget()
			if secrets() != 1 {
				t.Fatal("the end cannot be told without the routing key")
			}
			ends(c.Fixture, 2)
			if answers {
				wantTold(c.Fixture, world, 0)
			} else {
				c.Exec(`UPDATE punctual.tenants SET deleted_at = now() - interval '25 hours' WHERE id = $1`, c.Tenant)
			}
			forget()
			if secrets() != 0 {
				t.Error("its secrets stay")
			}
			c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
		})
	}
}

// A recipient that was removed because it is gone is not called for ever.
func TestARemovedRecipientThatTakesNothingIsGivenUp(t *testing.T) {
	c := NewReplica(t)
	c.Create("job", Never, Everything)
	c.Dies("job")
	c.WantHeard("failing 1, dead 1")
	c.Edit("job", TellsNobody)
	ends(c.Fixture, 1)
	Must(t, c.Notices.Answered(t.Context(), *c.ClaimNotice(), notice.Answer{Arrival: notice.Unsent, Status: 404}))
	ends(c.Fixture, 0)
	c.WantCount(1, "it is given up at once", `SELECT count(*) FROM punctual.notice_states`)
	c.Exec(`UPDATE punctual.outbox SET failing_since = now() - interval '25 hours'`)
	ends(c.Fixture, 0)
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
	c.WantHeard("")
	c.WantCount(0, "the recipient is due", `SELECT count(*) FROM punctual.outbox WHERE due_at IS NOT NULL`)
	c.Exec(`DELETE FROM punctual.notice_messages`)
	c.Exec(`UPDATE punctual.outbox SET failing_since = now() - interval '9 days'`)
	_, _, err := c.Notices.Forget(t.Context())
	Must(t, err)
	c.WantCount(0, "recipients are left", `SELECT count(*) FROM punctual.outbox`)
}
