package store

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/definitions"
	"punctual/store/notices"
)

// ends has the ends told of incidents that nobody ends, and checks how many there are.
func (c crud) ends(want int) {
	c.t.Helper()
	n, left, err := c.Notices.EndIncidents(c.t.Context())
	must(c.t, err)
	if n != want || left {
		c.t.Errorf("%d incidents end, want %d (left: %t)", n, want, left)
	}
}

// Trouble that nobody will tell the end of is over for its recipients, and they are told why.
func TestTroubleThatNobodyEndsIsOver(t *testing.T) {
	for _, test := range []struct {
		name, says string
		ends       int // of three recipients
		change     func(c claimer)
		open       bool // all the same
	}{
		{"nothing changed", "", 0, func(claimer) {}, true},
		{"its job is deleted", "Job job was deleted", 3, func(c claimer) { c.deleteJob("job") }, false},
		{"its job is paused", "Job job is paused", 3, func(c claimer) { c.pause("job") }, false},
		{"its job is paused for an hour", "", 0, func(c claimer) {
			c.pauseWith("job", "", new(c.now().Add(time.Hour)))
		}, true},
		{"its job has failed since it was paused", "", 0, func(c claimer) {
			c.pause("job")
			c.dies("job")
		}, true},
		{"its job has a run that waits", "", 0, func(c claimer) {
			c.trigger("job")
			c.pause("job")
		}, true},
		{"the recipients were removed", "Job job no longer tells of recoveries", 3, func(c claimer) {
			c.edit("job", tellsNobody)
		}, false},
		{"recoveries are no longer told", "Job job no longer tells of recoveries", 3, func(c claimer) {
			c.edit("job", func(d *domain.Definition) {
				d.Notify = slices.Clone(d.Notify)
				for i := range d.Notify {
					d.Notify[i].On = []domain.Event{domain.EventFailing, domain.EventDead}
				}
			})
		}, false},
		{"its tenant is deleted", "Job job was deleted with the tenant", 3, func(c claimer) {
			c.deleteJob("job")
			c.exec(`UPDATE punctual.tenants SET deleted_at = now() WHERE id = $1`, c.tenant)
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, world := withRecipients(t)
			c.create("job", never, slackly, statefully)
			c.dies("job")
			c.wantTold(world, 3, "Job job has dead runs")
			c.later()
			test.change(c)
			c.ends(test.ends)
			channel := strings.Join(c.told(world), "\n")
			if open := world.open(); test.open != (len(open) == 3) || !test.open && len(open) > 0 {
				t.Errorf("open: %q", open)
			}
			if test.says != "" && strings.Count(channel, `"text":"`+test.says) != 1+1 {
				t.Errorf("the channel is told %q", channel)
			}
			if test.open {
				return
			}
			c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_subjects`)
			c.ends(0)
		})
	}
}

// A job that fails again after its pause is told of as one that was well.
func TestAJobThatFailsAfterItsPauseIsToldOfAgain(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, notify(hook, domain.EventFailing, domain.EventRecovered))
	c.dies("job")
	c.wantHeard("failing 1")
	c.pause("job")
	c.ends(1)
	c.wantHeard("ended 1")
	c.resumed("job")
	c.later()
	c.dies("job")
	c.wantHeard("failing 1")
}

// A host's incident goes on while other jobs cannot reach it, and says which do not count any more.
func TestADeletedJobLeavesItsHostsIncident(t *testing.T) {
	c, world := withRecipients(t)
	c.unreachable("a", "b")
	c.told(world)
	c.later()
	c.deleteJob("a")
	c.ends(3)
	c.wantTold(world, 2, "1 job affected; job a was deleted")
	c.later()
	c.deleteJob("b")
	c.ends(3)
	c.wantTold(world, 0, "no job is left to tell whether ")
}

// Alertmanager knows a job by its name and labels. Trouble that it knows by others than the job has now is over.
func TestAJobsTroubleIsOneWhateverItsNameAndLabels(t *testing.T) {
	c, world := withRecipients(t)
	c.Notices = notices.NewTeller(c.DB, definitions.New(0, 0), notices.Options{
		Log: slog.New(slog.DiscardHandler), Labels: []string{"team"},
	})
	labelled := func(name, team string) option {
		return func(d *domain.Definition) { d.Name, d.Labels = name, map[string]string{"team": team} }
	}
	c.create("old", never, statefully, labelled("old", "money"))
	c.dies("old")
	c.told(world)
	if open := fmt.Sprint(world.open()); !strings.Contains(open, "job:old") || !strings.Contains(open, "team:money") {
		t.Fatalf("open: %s", open)
	}
	c.edit("old", labelled("new", "cards"))
	c.later()
	c.dies("new")
	c.told(world)
	if open := fmt.Sprint(world.open()); strings.Contains(open, "job:old") || !strings.Contains(open, "job:new") {
		t.Errorf("open: %s", open)
	}
	c.edit("new", labelled("newest", "cards"))
	c.later()
	c.wellAgain("newest")
	c.wantTold(world, 0)
}

// The secrets of a deleted tenant stay until its recipients know that its trouble is over, for a day at most. So do
// its lines.
func TestADeletedTenantsRecipientsAreToldTheEnd(t *testing.T) {
	for name, answers := range map[string]bool{"a recipient that takes it": true, "one that takes nothing": false} {
		t.Run(name, func(t *testing.T) {
			c := newClaimer(t)
			c.tenant = c.newTenant("other").ID
			c.secret("key", "routing")
			c.create("job", never, statefully)
			c.dies("job")
			world := incidents{}
			c.told(world)
			c.deleteJob("job")
			must(t, c.Tenants.DeleteTenant(t.Context(), "other"))
			secrets := func() int { return c.count(`SELECT count(*) FROM punctual.secrets`) }
			forget := func() {
				_, _, notices := c.Notices.ForgetNotices(t.Context())
				_, _, secrets := c.Secrets.ForgetOfDeleted(t.Context())
				must(t, notices)
				must(t, secrets)
			}
			forget()
			if secrets() != 1 {
				t.Fatal("the end cannot be told without the routing key")
			}
			c.ends(2)
			if answers {
				c.wantTold(world, 0)
			} else {
				c.exec(`UPDATE punctual.tenants SET deleted_at = now() - interval '25 hours' WHERE id = $1`, c.tenant)
			}
			forget()
			if secrets() != 0 {
				t.Error("its secrets stay")
			}
			c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_subjects`)
		})
	}
}

// A recipient that was removed because it is gone is not called for ever.
func TestARemovedRecipientThatTakesNothingIsGivenUp(t *testing.T) {
	c := newClaimer(t)
	c.create("job", never, everything)
	c.dies("job")
	c.wantHeard("failing 1, dead 1")
	c.edit("job", tellsNobody)
	c.ends(1)
	must(t, c.Notices.Answered(t.Context(), *c.claimNotice(), notice.Answer{Arrival: notice.Unsent, Status: 404}))
	c.ends(0)
	c.wantCount(1, "it is given up at once", `SELECT count(*) FROM punctual.notice_subjects`)
	c.exec(`UPDATE punctual.notice_lines SET failing_since = now() - interval '25 hours'`)
	c.ends(0)
	c.wantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_subjects`)
	c.wantHeard("")
	c.wantCount(0, "the line is due", `SELECT count(*) FROM punctual.notice_lines WHERE due_at IS NOT NULL`)
	c.exec(`DELETE FROM punctual.notice_messages`)
	c.exec(`UPDATE punctual.notice_lines SET failing_since = now() - interval '9 days'`)
	_, _, err := c.Notices.ForgetNotices(t.Context())
	must(t, err)
	c.wantCount(0, "lines are left", `SELECT count(*) FROM punctual.notice_lines`)
}
