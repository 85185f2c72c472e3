package notices_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/scheduler/notice"
	"punctual/store/days"
	"punctual/store/notices"
	"punctual/store/pg"
)

func lookForOverlaps(c Replica) {
	c.T.Helper()
	Must(c.T, c.Notices.FindOverlapping(c.T.Context()))
}

func TestAJobMostOfWhoseSlotsAreSkippedIsToldOfOnce(t *testing.T) {
	c := NewReplica(t)
	now := time.Now().UTC().Truncate(time.Second)
	job := c.Create("job", Rarely, Forbid, Everything).ID
	c.Create("well", Rarely, Forbid, Everything)
	quiet := c.Create("quiet", Rarely, Forbid).ID // without a recipient
	for i := range 22 {                           // every three minutes: two of three are skipped
		fate := "overlap"
		if i%3 == 2 {
			fate = "ran"
		}
		for _, id := range []uuid.UUID{job, quiet} {
			c.SlotAt(id, now.Add(-time.Duration(i*3)*time.Minute), fate)
		}
	}
	lookForOverlaps(c)
	a := c.WantHeard("overlapping 1")
	if e := Digest(t, a).Events[0]; len(e.Runs) != 1 || e.Since == nil || now.Sub(*e.Since) != 63*time.Minute ||
		!strings.HasPrefix(e.Runs[0].Error, "15 of 22 slots since ") || e.Runs[0].Reason != domain.ReasonOverlap {
		t.Errorf("told of %+v", e)
	}
	lookForOverlaps(c)
	c.WantHeard("") // it goes on

	// The three newest slots ran: it is over, and may begin again.
	for i := range 3 {
		c.SlotAt(job, now.Add(time.Duration(i+1)*time.Second), "ran")
	}
	lookForOverlaps(c)
	c.Later()
	c.WantHeard("overlap_over 1")
	c.WantCount(0, "job is still marked", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
	c.SlotAt(job, now.Add(5*time.Second), "overlap")
	c.Exec(`UPDATE punctual.notified SET sent = '{}'`)
	for i := range 20 {
		c.SlotAt(job, now.Add(-time.Duration(i)*time.Minute-30*time.Second), "overlap")
	}
	lookForOverlaps(c)
	c.WantHeard("overlapping 1")
}

func TestWhatIsNoSteadyOverlap(t *testing.T) {
	c := NewReplica(t)
	now := time.Now().UTC().Truncate(time.Second)
	for name, fates := range map[string][]string{ // every half an hour, the newest first
		"two slots":        {"overlap", "overlap"},
		"every other slot": {"overlap", "ran", "overlap", "ran", "overlap", "ran"},
		"slots of a pause": {"paused", "paused", "paused", "paused"},
	} {
		id := c.Create(strings.ReplaceAll(name, " ", "-"), Rarely, Forbid, Everything).ID
		for i, fate := range fates {
			c.SlotAt(id, now.Add(-time.Duration(i)*30*time.Minute), fate)
		}
	}
	brief := c.Create("brief", Rarely, Forbid, Everything).ID
	for i := range 40 {
		c.SlotAt(brief, now.Add(-time.Duration(i)*time.Minute), "overlap")
	}
	lookForOverlaps(c)
	c.WantHeard("")

	id := c.Create("replaced", Rarely, Everything).ID
	for i := range 4 {
		c.SlotAt(id, now.Add(-time.Duration(i)*40*time.Minute-time.Minute), "replaced")
	}
	lookForOverlaps(c)
	c.WantHeard("overlapping 1")
}

// crowd skips most of a job's slots for more than an hour.
func crowd(c Replica, jobs ...uuid.UUID) {
	c.T.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	for _, job := range jobs {
		for i := range 6 {
			c.SlotAt(job, now.Add(-time.Duration(i)*13*time.Minute), "overlap")
		}
	}
}

// The end is told to everybody, also to those who keep incidents, and however the slots stopped to be skipped.
func TestTheEndOfSteadyOverlapsIsTold(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(Replica, uuid.UUID){
		"the slots run": Replica.Clear,
		"it is paused":  func(c Replica, _ uuid.UUID) { c.Pause("job") },
		"it is deleted": func(c Replica, _ uuid.UUID) { c.DeleteJob("job") },
		"nobody asks": func(c Replica, id uuid.UUID) {
			c.Edit("job", func(d *jobspec.Definition) { d.Notify = nil })
			c.Clear(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			job := c.Create("job", Rarely, slackly, statefully, func(d *jobspec.Definition) {
				for i := range d.Notify {
					d.Notify[i].On = []jobspec.Event{jobspec.EventOverlapping}
				}
			}).ID
			crowd(c, job)
			lookForOverlaps(c)
			wantTold(c.Fixture, world, 2, "Job job skips most slots")
			c.Later()
			wantTold(c.Fixture, world, 2) // while it lasts
			end(c, job)
			lookForOverlaps(c)
			c.Later()
			wantTold(c.Fixture, world, 0, "Job job skips slots no longer")
			c.Later()
			wantTold(c.Fixture, world, 0)
			c.WantCount(0, "recipients are looked at",
				`SELECT count(*) FROM punctual.outbox WHERE due_at IS NOT NULL OR causes <> '{}'`)
			list, _, _, err := c.Notices.ListNotices(t.Context(), c.Tenant, notices.Filter{Job: job})
			Must(t, err)
			if len(list) != 6 {
				t.Errorf("%d messages are listed with the job", len(list))
			}
		})
	}
}

// A job that fails and skips slots has two incidents: the end of one is not the end of the other.
func TestARecoveryDoesNotEndOverlaps(t *testing.T) {
	c, world := withRecipients(t)
	job := c.Create("job", Rarely, statefully, func(d *jobspec.Definition) {
		for i := range d.Notify {
			d.Notify[i].On = jobspec.Events
		}
	}).ID
	c.Dies("job")
	crowd(c, job)
	lookForOverlaps(c)
	wantTold(c.Fixture, world, 5) // two at PagerDuty; failing, dead and overlapping at Alertmanager
	c.WellAgain("job")
	c.Later()
	told(c.Fixture, world)
	if open := world.open(); len(open) != 2 || !strings.Contains(fmt.Sprint(open), "PunctualSlotsOverlap") {
		t.Errorf("when it has recovered: %q", open)
	}
}

// What is over before the recipient could hear of it is not told, and what begins again is.
func TestOverlapsAreToldAsTheyAre(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", Rarely, Everything).ID
	crowd(c, job)
	lookForOverlaps(c)
	c.Tell()
	c.Clear(job)
	lookForOverlaps(c)
	c.WantHeard("")
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
	c.Exec(`UPDATE punctual.notified SET overlapping_since = now(), sent = '{}'`)
	again := func() {
		c.Exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
			SELECT id, tenant, 1, 'overlapping', gen_random_uuid(), now() FROM punctual.jobs`)
		c.Later()
		c.Tell()
	}
	again()
	m, err := c.Notices.Claim(t.Context(), false)
	Must(t, err)
	again() // while the message is under way
	Must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	c.WantHeard("overlapping 1")
	c.Later()
	c.WantHeard("")
}

// Many jobs that skip slots are told of in one message, and so is their end. At PagerDuty they share an incident.
func TestManyOverlapsAreOneMessage(t *testing.T) {
	c := NewReplica(t)
	c.Secret("key", "routing")
	const jobs = 130
	c.Many(jobs, "job", 0, Rarely, Everything, func(d *jobspec.Definition) {
		d.Notify = append(d.Notify, jobspec.Notify{
			On: jobspec.Events, Format: jobspec.FormatPagerDuty, URL: pagerURL, Secret: "key",
		})
	})
	c.Exec(`INSERT INTO punctual.notified (job_id, overlapping_since) SELECT id, now() FROM punctual.jobs
		ON CONFLICT (job_id) DO UPDATE SET overlapping_since = now()`)
	c.Exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for, since)
		SELECT id, tenant, 1, 'overlapping', gen_random_uuid(), now(), now() FROM punctual.jobs`)
	says := func(want string, open int) {
		t.Helper()
		world := incidents{}
		heard := c.Hears()
		if got := Message(t, heard[Hook]); !strings.HasPrefix(got.Headline, want) || len(got.Subjects) != jobs {
			t.Errorf("%d subjects: %s", len(got.Subjects), got.Headline)
		}
		if world.take(t, heard[pagerURL]); len(world.open()) != open {
			t.Errorf("open: %v", world.open())
		}
	}
	says("130 jobs skip most slots since ", 1)
	counts, err := c.Notices.CountOverlapping(t.Context())
	Must(t, err)
	if len(counts) != 1 || counts[0].Jobs != jobs {
		t.Errorf("counted %v", counts)
	}
	c.Exec(`UPDATE punctual.jobs SET state = 'paused', paused_at = now()`)
	lookForOverlaps(c)
	says("130 jobs skip slots no longer (tenant default)", 0)
	c.WantCount(0, "rows are left", `SELECT count(*) FROM punctual.notice_states`)
}

// Jobs with a slot a day are told of, also if no slot is on weekends, and whether their runs are skipped or replaced.
func TestSlotsADayApart(t *testing.T) {
	c := NewReplica(t)
	now := time.Now().UTC().Truncate(time.Second)
	c.Exec(`SELECT punctual.create_partitions(current_date - 20, current_date)`)
	for name, days := range map[string][]int{"daily": {0, 1, 2, 3, 4, 5}, "weekdays": {0, 1, 4, 5, 6, 7}} {
		for _, fate := range []string{"overlap", "replaced"} {
			id := c.Create(name+"-"+fate, Rarely, Everything).ID
			for i, d := range days {
				at := now.AddDate(0, 0, -d).Add(-time.Minute)
				if fate == "replaced" {
					at = at.AddDate(0, 0, -1) // the run of the slot before that
				}
				c.SlotAt(id, at, map[bool]string{true: fate, false: "ran"}[i%3 != 2])
			}
		}
	}
	lookForOverlaps(c)
	c.Tell()
	c.WantCount(4, "jobs are told of", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
	lookForOverlaps(c)
	c.WantCount(4, "jobs are told of still", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
}

// A look reads by index, and no more than its bounds, however many jobs are busy. The test counts pages, not time.
func TestALookAtTenThousandBusyJobsIsBounded(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := ReplicaOnClone(t)
	const jobs, asking = 10_000, 20
	c.Many(jobs, "busy", 0, Rarely)
	c.Many(asking, "asks", 0, Rarely, Everything)
	c.Exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			skipped_count, tenant, job_version, lane, status, reason, trigger)
		SELECT (lpad(to_hex((extract(epoch FROM s.at) * 1000)::bigint), 12, '0') || '7' ||
				right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid,
			j.id, s.at, s.at, s.at, s.at, s.at, 1, j.tenant, 1, 5, 'skipped', 'overlap', 'schedule'
		FROM punctual.jobs j, LATERAL (SELECT now() - i * interval '9 min' - random() * interval '1 s' AS at
			FROM generate_series(0, 8) i) s`)
	c.Exec(`ANALYZE punctual.runs`)
	wantPages := func(p Plan, most int) {
		t.Helper()
		for _, node := range p.Scans("runs") {
			t.Errorf("runs are read by %s", node)
		}
		if pages := p.Hit + p.Read; pages > most {
			t.Errorf("%d pages, want at most %d", pages, most)
		} else {
			t.Logf("%d pages", pages)
		}
	}
	sql, args := notices.Crowding()
	wantPages(c.Explain(sql, args...), 200_000)
	ids, err := pg.All(t.Context(), c.DB.Callers, pgx.RowTo[uuid.UUID], sql, args...)
	Must(t, err)
	if len(ids) != asking {
		t.Fatalf("%d jobs are looked at, want only those who ask: %d", len(ids), asking)
	}
	sql, args = notices.Counting(days.Recent(), ids, c.Clock())
	wantPages(c.Explain(sql, args...), 100*asking)
	lookForOverlaps(c)
	c.WantCount(asking, "jobs are told of", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
}
