package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/scheduler/notice"
	"punctual/store/days"
	"punctual/store/notices"
	"punctual/store/pg"
)

// slotAt records what became of a slot: it ran, or was skipped or replaced because the run before had not ended.
func (c crud) slotAt(job uuid.UUID, at time.Time, fate string) {
	c.t.Helper()
	switch fate {
	case "ran":
		c.ranAt(job, domain.SlotRunID(job, at), at)
	case "replaced":
		c.ranAt(job, domain.SlotRunID(job, at), at)
		c.exec(`UPDATE punctual.runs SET status = 'cancelled', reason = 'replaced' WHERE id = $1`, domain.SlotRunID(job, at))
	default:
		c.skippedAt(job, at, at, 1)
		c.exec(`UPDATE punctual.runs SET id = $2, reason = $3, created_at = $4 WHERE job_id = $1 AND skipped_last = $4`, job,
			domain.NewRunID(at), fate, at)
	}
}

func (c claimer) lookForOverlaps() {
	c.t.Helper()
	must(c.t, c.Notices.FindOverlapping(c.t.Context()))
}

func TestAJobMostOfWhoseSlotsAreSkippedIsToldOfOnce(t *testing.T) {
	c := newClaimer(t)
	now := time.Now().UTC().Truncate(time.Second)
	job := c.create("job", rarely, forbid, everything).ID
	c.create("well", rarely, forbid, everything)
	quiet := c.create("quiet", rarely, forbid).ID // without a recipient
	for i := range 22 {                           // every three minutes: two of three are skipped
		fate := "overlap"
		if i%3 == 2 {
			fate = "ran"
		}
		for _, id := range []uuid.UUID{job, quiet} {
			c.slotAt(id, now.Add(-time.Duration(i*3)*time.Minute), fate)
		}
	}
	c.lookForOverlaps()
	a := c.wantHeard("overlapping 1")
	if e := news(t, a).Events[0]; len(e.Runs) != 1 || e.Since == nil || now.Sub(*e.Since) != 63*time.Minute ||
		!strings.HasPrefix(e.Runs[0].Error, "15 of 22 slots since ") || e.Runs[0].Reason != domain.ReasonOverlap {
		t.Errorf("told of %+v", e)
	}
	c.lookForOverlaps()
	c.wantHeard("") // it goes on

	// The three newest slots ran: it is over, and may begin again.
	for i := range 3 {
		c.slotAt(job, now.Add(time.Duration(i+1)*time.Second), "ran")
	}
	c.lookForOverlaps()
	c.later()
	c.wantHeard("overlap_over 1")
	c.wantCount(0, "job is still marked", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
	c.slotAt(job, now.Add(5*time.Second), "overlap")
	c.exec(`UPDATE punctual.notified SET sent = '{}'`)
	for i := range 20 {
		c.slotAt(job, now.Add(-time.Duration(i)*time.Minute-30*time.Second), "overlap")
	}
	c.lookForOverlaps()
	c.wantHeard("overlapping 1")
}

func TestWhatIsNoSteadyOverlap(t *testing.T) {
	c := newClaimer(t)
	now := time.Now().UTC().Truncate(time.Second)
	for name, fates := range map[string][]string{ // every half an hour, the newest first
		"two slots":        {"overlap", "overlap"},
		"every other slot": {"overlap", "ran", "overlap", "ran", "overlap", "ran"},
		"slots of a pause": {"paused", "paused", "paused", "paused"},
	} {
		id := c.create(strings.ReplaceAll(name, " ", "-"), rarely, forbid, everything).ID
		for i, fate := range fates {
			c.slotAt(id, now.Add(-time.Duration(i)*30*time.Minute), fate)
		}
	}
	brief := c.create("brief", rarely, forbid, everything).ID
	for i := range 40 {
		c.slotAt(brief, now.Add(-time.Duration(i)*time.Minute), "overlap")
	}
	c.lookForOverlaps()
	c.wantHeard("")

	id := c.create("replaced", rarely, everything).ID
	for i := range 4 {
		c.slotAt(id, now.Add(-time.Duration(i)*40*time.Minute-time.Minute), "replaced")
	}
	c.lookForOverlaps()
	c.wantHeard("overlapping 1")
}

// crowd skips most of a job's slots for more than an hour.
func (c claimer) crowd(jobs ...uuid.UUID) {
	c.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	for _, job := range jobs {
		for i := range 6 {
			c.slotAt(job, now.Add(-time.Duration(i)*13*time.Minute), "overlap")
		}
	}
}

// clear lets the newest slots of a job run.
func (c claimer) clear(job uuid.UUID) {
	c.t.Helper()
	for i := range 6 {
		c.slotAt(job, time.Now().UTC().Truncate(time.Second).Add(time.Duration(i+1)*time.Second), "ran")
	}
}

// The end is told to everybody, also to those who keep incidents, and however the slots stopped to be skipped.
func TestTheEndOfSteadyOverlapsIsTold(t *testing.T) {
	for name, end := range map[string]func(claimer, uuid.UUID){
		"the slots run": claimer.clear,
		"it is paused":  func(c claimer, _ uuid.UUID) { c.pause("job") },
		"it is deleted": func(c claimer, _ uuid.UUID) { c.deleteJob("job") },
		"nobody asks": func(c claimer, id uuid.UUID) {
			c.edit("job", func(d *domain.Definition) { d.Notify = nil })
			c.clear(id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, world := withRecipients(t)
			job := c.create("job", rarely, slackly, statefully, func(d *domain.Definition) {
				for i := range d.Notify {
					d.Notify[i].On = []domain.Event{domain.EventOverlapping}
				}
			}).ID
			c.crowd(job)
			c.lookForOverlaps()
			c.wantTold(world, 2, "Job job skips most slots")
			c.later()
			c.wantTold(world, 2) // while it lasts
			end(c, job)
			c.lookForOverlaps()
			c.later()
			c.wantTold(world, 0, "Job job skips slots no longer")
			c.later()
			c.wantTold(world, 0)
			c.wantCount(0, "lines are looked at",
				`SELECT count(*) FROM punctual.notice_lines WHERE due_at IS NOT NULL OR causes <> '{}'`)
			list, _, _, err := c.Notices.ListNotices(t.Context(), c.tenant, notices.Filter{Job: job})
			must(t, err)
			if len(list) != 6 {
				t.Errorf("%d messages are listed with the job", len(list))
			}
		})
	}
}

// A job that fails and skips slots has two incidents: the end of one is not the end of the other.
func TestARecoveryDoesNotEndOverlaps(t *testing.T) {
	c, world := withRecipients(t)
	job := c.create("job", rarely, statefully, func(d *domain.Definition) {
		for i := range d.Notify {
			d.Notify[i].On = domain.Events
		}
	}).ID
	c.dies("job")
	c.crowd(job)
	c.lookForOverlaps()
	c.wantTold(world, 5) // two at PagerDuty; failing, dead and overlapping at Alertmanager
	c.wellAgain("job")
	c.later()
	c.told(world)
	if open := world.open(); len(open) != 2 || !strings.Contains(fmt.Sprint(open), "PunctualSlotsOverlap") {
		t.Errorf("when it has recovered: %q", open)
	}
}

// What is over before the recipient could hear of it is not told, and what begins again is.
func TestOverlapsAreToldAsTheyAre(t *testing.T) {
	c := newClaimer(t)
	job := c.create("job", rarely, everything).ID
	c.crowd(job)
	c.lookForOverlaps()
	c.tell()
	c.clear(job)
	c.lookForOverlaps()
	c.wantHeard("")
	c.exec(`UPDATE punctual.notified SET overlapping_since = now(), sent = '{}'`)
	again := func() {
		c.exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
			SELECT id, tenant, 1, 'overlapping', gen_random_uuid(), now() FROM punctual.jobs`)
		c.later()
		c.tell()
	}
	again()
	m, err := c.Notices.ClaimNotice(t.Context())
	must(t, err)
	again() // while the message is under way
	must(t, c.Notices.Answered(t.Context(), *m, notice.Answer{Arrival: notice.Delivered}))
	c.wantHeard("overlapping 1")
	c.later()
	c.wantHeard("")
}

// Many jobs that skip slots share a subject, so that what a recipient knows stays small.
func TestManyOverlapsAreOneSubject(t *testing.T) {
	c := newClaimer(t)
	const jobs = 130
	c.many(jobs, "job", 0, rarely, everything)
	c.exec(`UPDATE punctual.notified SET overlapping_since = now()`)
	c.exec(`INSERT INTO punctual.notified (job_id, overlapping_since) SELECT id, now() FROM punctual.jobs
		ON CONFLICT (job_id) DO UPDATE SET overlapping_since = now()`)
	c.exec(`INSERT INTO punctual.notices (job_id, tenant, job_version, event, run_id, scheduled_for)
		SELECT id, tenant, 1, 'overlapping', gen_random_uuid(), now() FROM punctual.jobs`)
	said := message(t, c.hears()[hook])
	shared := said.Subjects[0]
	if len(said.Subjects) != 11 || len(shared.Jobs) != 100 || shared.More != 20 ||
		said.Headline != "130 jobs skip most slots since "+shared.Since.Format(time.RFC3339)+" (tenant default)" {
		t.Fatalf("%s: %d subjects, the first with %d jobs and %d more",
			said.Headline, len(said.Subjects), len(shared.Jobs), shared.More)
	}
	counts, err := c.Notices.CountOverlapping(t.Context())
	must(t, err)
	if len(counts) != 1 || counts[0].Jobs != jobs {
		t.Errorf("counted %v", counts)
	}
	c.exec(`UPDATE punctual.notified SET overlapping_since = NULL`)
	c.later()
	said = message(t, c.hears()[hook])
	if said.Headline != "130 jobs skip slots no longer (tenant default)" {
		t.Errorf("at the end: %s", said.Headline)
	}
}

// Jobs with a slot a day are told of, also if no slot is on weekends, and whether their runs are skipped or replaced.
func TestSlotsADayApart(t *testing.T) {
	c := newClaimer(t)
	now := time.Now().UTC().Truncate(time.Second)
	c.exec(`SELECT punctual.create_partitions(current_date - 20, current_date)`)
	for name, days := range map[string][]int{"daily": {0, 1, 2, 3, 4, 5}, "weekdays": {0, 1, 4, 5, 6, 7}} {
		for _, fate := range []string{"overlap", "replaced"} {
			id := c.create(name+"-"+fate, rarely, everything).ID
			for i, d := range days {
				at := now.AddDate(0, 0, -d).Add(-time.Minute)
				if fate == "replaced" {
					at = at.AddDate(0, 0, -1) // the run of the slot before that
				}
				c.slotAt(id, at, map[bool]string{true: fate, false: "ran"}[i%3 != 2])
			}
		}
	}
	c.lookForOverlaps()
	c.tell()
	c.wantCount(4, "jobs are told of", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
	c.lookForOverlaps()
	c.wantCount(4, "jobs are told of still", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
}

// A look reads by index, and no more than its bounds, however many jobs are busy. The test counts pages, not time.
func TestALookAtTenThousandBusyJobsIsBounded(t *testing.T) {
	pgtest.Exhaustive(t, "its tables are large")
	c := claimerOnClone(t)
	const jobs, asking = 10_000, 20
	c.many(jobs, "busy", 0, rarely)
	c.many(asking, "asks", 0, rarely, everything)
	c.exec(`INSERT INTO punctual.runs (id, job_id, scheduled_for, due_at, finished_at, skipped_first, skipped_last,
			skipped_count, tenant, job_version, lane, status, reason, trigger)
		SELECT (lpad(to_hex((extract(epoch FROM s.at) * 1000)::bigint), 12, '0') || '7' ||
				right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid,
			j.id, s.at, s.at, s.at, s.at, s.at, 1, j.tenant, 1, 5, 'skipped', 'overlap', 'schedule'
		FROM punctual.jobs j, LATERAL (SELECT now() - i * interval '9 min' - random() * interval '1 s' AS at
			FROM generate_series(0, 8) i) s`)
	c.exec(`ANALYZE punctual.runs`)
	wantPages := func(p plan, most int) {
		t.Helper()
		for _, node := range p.scans("runs") {
			t.Errorf("runs are read by %s", node)
		}
		if pages := p.Hit + p.Read; pages > most {
			t.Errorf("%d pages, want at most %d", pages, most)
		} else {
			t.Logf("%d pages", pages)
		}
	}
	sql, args := notices.Crowding()
	wantPages(c.explain(sql, args...), 200_000)
	ids, err := pg.All(t.Context(), c.DB.Callers, pgx.RowTo[uuid.UUID], sql, args...)
	must(t, err)
	if len(ids) != asking {
		t.Fatalf("%d jobs are looked at, want only those who ask: %d", len(ids), asking)
	}
	sql, args = notices.Counting(days.Recent(), ids, c.now())
	wantPages(c.explain(sql, args...), 100*asking)
	c.lookForOverlaps()
	c.wantCount(asking, "jobs are told of", `SELECT count(*) FROM punctual.notified WHERE overlapping_since IS NOT NULL`)
}
