package domain

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

var (
	activeRun  = uuid.MustParse("0199c9a2-7b3c-8d10-9c3e-2f6f3f1d5a02")
	waitingRun = uuid.MustParse("0199c9a2-7b3c-8d10-9c3e-2f6f3f1d5a03")
)

// hourly is the schedule of most tests here.
const hourly = `"schedule":{"cron":"0 * * * *"},"jitter":"0s"`

// clockTime writes an instant of 2026-10-11 as its time of day. It adds the day to any other instant.
func clockTime(at time.Time) string {
	text := at.Format("2006-01-02T15:04:05.999999")
	return strings.TrimPrefix(strings.TrimPrefix(text, "2026-10-11T"), "2026-10-")
}

// describe writes a plan in words, in the order of time.
func describe(p Plan) string {
	var lines []string
	for _, s := range p.Skips {
		line := fmt.Sprintf("skip %s..%s %s x%d", clockTime(s.First), clockTime(s.Last), s.Reason, s.Count)
		if s.BlockedBy == activeRun {
			line += " by the active run"
		}
		if s.BlockedBy == waitingRun {
			line += " by the waiting run"
		}
		lines = append(lines, line)
	}
	for _, r := range p.Runs {
		line := fmt.Sprintf("run %s", clockTime(r.ScheduledFor))
		if !r.DueAt.Equal(r.ScheduledFor) {
			line += " due " + clockTime(r.DueAt)
		}
		line += " " + string(r.Trigger)
		if r.Late {
			line += " late"
		}
		if r.Waits {
			line += " waits"
		}
		lines = append(lines, line)
	}
	for _, id := range p.Cancel {
		lines = append(
			lines, map[uuid.UUID]string{activeRun: "cancel the active run", waitingRun: "cancel the waiting run"}[id],
		)
	}
	switch {
	case p.Done && p.Next.IsZero() && p.NextRunAt.IsZero():
		lines = append(lines, "done")
	case p.Next.Equal(p.NextRunAt):
		lines = append(lines, "next "+clockTime(p.Next))
	default:
		lines = append(lines, "next "+clockTime(p.Next)+" at "+clockTime(p.NextRunAt))
	}
	return strings.Join(lines, "; ")
}

func TestDecide(t *testing.T) {
	const (
		endsAt     = `"jitter":"0s","schedule":{"cron":"0 * * * *","ends_at":`
		every10s   = `"schedule":{"every":"10s"}`
		andFireAll = `,"missed":{"policy":"fire_all"}`
		fireAll    = hourly + andFireAll
		skipMissed = hourly + `,"missed":{"policy":"skip"}`
		forbid     = hourly + `,"concurrency_policy":"forbid"`
		wait       = hourly + `,"concurrency_policy":"wait"`
		replace    = hourly + `,"concurrency_policy":"replace"`
	)
	for _, c := range []struct {
		name, job string
		slot, now string
		active    bool
		waiting   bool
		room      int
		pending   int
		want      string
	}{
		{
			name: "a slot claimed in time runs", job: hourly, slot: "03:00", now: "03:00:00.004",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "a slot claimed at its very instant runs", job: hourly, slot: "03:00", now: "03:00",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "a slow tick makes no slot missed", job: hourly, slot: "03:00", now: "03:00:59",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "at its tolerance a slot is in time", job: skipMissed, slot: "03:00", now: "03:01:00",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "a microsecond beyond its tolerance it is missed", job: skipMissed, slot: "03:00", now: "03:01:00.000001",
			want: "skip 03:00:00..03:00:00 missed x1; next 04:00:00",
		},
		{
			name: "a tolerance of its own counts",
			job:  hourly + `,"missed":{"policy":"skip","tolerance":"1s"}`, slot: "03:00", now: "03:00:02",
			want: "skip 03:00:00..03:00:00 missed x1; next 04:00:00",
		},
		{
			name: "the next slot follows the slot and not the claim", job: every10s, slot: "03:00:00", now: "03:00:07",
			want: "run 03:00:00 schedule; next 03:00:10",
		},
		{
			name: "all slots that are due run in one claim", job: every10s, slot: "03:00:00", now: "03:00:20",
			want: "run 03:00:00 schedule; run 03:00:10 schedule; run 03:00:20 schedule; next 03:00:30",
		},
		{
			name: "as many of them as there are worker slots", job: every10s, slot: "03:00:00", now: "03:00:25", room: 2,
			want: "run 03:00:00 schedule; run 03:00:10 schedule; next 03:00:20",
		},
		{
			name: "one of them if runs must not overlap",
			job:  `"schedule":{"every":"10s"},"concurrency_policy":"forbid"`, slot: "03:00:00", now: "03:00:25",
			want: "run 03:00:00 schedule; next 03:00:10",
		},

		{
			name: "skip records all missed slots as one and goes on to the first that is not",
			job:  skipMissed, slot: "03:00", now: "07:30",
			want: "skip 03:00:00..07:00:00 missed x5; next 08:00:00",
		},
		{
			name: "skip leaves a slot that is due within its tolerance to run",
			job:  skipMissed, slot: "03:00", now: "07:00:30",
			want: "skip 03:00:00..06:00:00 missed x4; next 07:00:00",
		},
		{
			name: "fire_once is the default: the newest runs late and the others are one skip",
			job:  hourly, slot: "03:00", now: "07:30",
			want: "skip 03:00:00..06:00:00 missed x4; run 07:00:00 catchup late; next 08:00:00",
		},
		{
			name: "fire_once with one missed slot skips none", job: hourly, slot: "03:00", now: "03:30",
			want: "run 03:00:00 catchup late; next 04:00:00",
		},
		{
			name: "fire_once beyond the window only records",
			job:  `"schedule":{"cron":"0 3 * * *"},"jitter":"0s","missed":{"window":"1h"}`, slot: "09T03:00", now: "11T05:00",
			want: "skip 09T03:00:00..03:00:00 missed x3; next 12T03:00:00",
		},
		{
			name: "the newest missed slot runs until the next one comes",
			job:  `"schedule":{"cron":"0 3 1 * *"},"jitter":"0s"`, slot: "01T03:00", now: "11T05:00",
			want: "run 01T03:00:00 catchup late; next 2026-11-01T03:00:00",
		},
		{
			name: "others run for a day",
			job:  hourly + `,"missed":{"policy":"fire_all"}`, slot: "09T01:00", now: "10T03:30",
			want: "skip 09T01:00:00..09T03:00:00 missed x3; run 09T04:00:00 catchup late waits; run 09T05:00:00 catchup late waits; run 09T06:00:00 catchup late waits; run 09T07:00:00 catchup late waits; run 09T08:00:00 catchup late waits; run 09T09:00:00 catchup late waits; run 09T10:00:00 catchup late waits; run 09T11:00:00 catchup late waits; run 09T12:00:00 catchup late waits; run 09T13:00:00 catchup late waits; next 09T14:00:00",
		},
		{
			name: "at the end of the window a slot still runs",
			job:  `"schedule":{"cron":"0 3 * * *"},"jitter":"0s","missed":{"window":"1h"}`, slot: "03:00", now: "04:00",
			want: "run 03:00:00 catchup late; next 12T03:00:00",
		},
		{
			name: "fire_all runs each, oldest first", job: fireAll, slot: "03:00", now: "05:30",
			want: "run 03:00:00 catchup late waits; run 04:00:00 catchup late waits; run 05:00:00 catchup late waits; next 06:00:00",
		},
		{
			name: "fire_all with concurrency allow runs them side by side",
			job:  hourly + `,"missed":{"policy":"fire_all","concurrency":"allow"}`, slot: "03:00", now: "04:30",
			want: "run 03:00:00 catchup late; run 04:00:00 catchup late; next 05:00:00",
		},
		{
			name: "fire_all makes no more runs while many wait", job: fireAll, slot: "03:00", now: "04:30", pending: 100,
			want: "next 03:00:00 at 04:30:01",
		},
		{
			name: "fire_all records what lies beyond the window",
			job:  hourly + `,"missed":{"policy":"fire_all","window":"90m"}`, slot: "00:00", now: "05:30",
			want: "skip 00:00:00..03:00:00 missed x4; run 04:00:00 catchup late waits; run 05:00:00 catchup late waits; next 06:00:00",
		},
		{
			name: "fire_all with everything beyond the window only records",
			job:  hourly + `,"missed":{"policy":"fire_all","window":"1s"}`, slot: "00:00", now: "05:30",
			want: "skip 00:00:00..05:00:00 missed x6; next 06:00:00",
		},
		{
			name: "fire_all is paced",
			job:  `"schedule":{"every":"1m"},"missed":{"policy":"fire_all"}`, slot: "03:00", now: "05:30",
			want: "run 03:00:00 catchup late waits; run 03:01:00 catchup late waits; run 03:02:00 catchup late waits; run 03:03:00 catchup late waits; run 03:04:00 catchup late waits; " +
				"run 03:05:00 catchup late waits; run 03:06:00 catchup late waits; run 03:07:00 catchup late waits; run 03:08:00 catchup late waits; run 03:09:00 catchup late waits; next 03:10:00",
		},
		{
			name: "fire_all leaves a slot that is due within its tolerance to run in time",
			job:  `"schedule":{"every":"1m"},"missed":{"policy":"fire_all"}`, slot: "03:00", now: "03:02:30",
			want: "run 03:00:00 catchup late waits; run 03:01:00 catchup late waits; next 03:02:00",
		},

		{
			name: "a one-shot in time runs and is done",
			job:  `"schedule":{"at":"2026-10-11T03:00:00Z"}`, slot: "03:00", now: "03:00:01",
			want: "run 03:00:00 schedule; done",
		},
		{
			name: "a one-shot has an unlimited window",
			job:  `"schedule":{"at":"2026-10-01T03:00:00Z"}`, slot: "01T03:00", now: "11T03:00",
			want: "run 01T03:00:00 catchup late; done",
		},
		{
			name: "a missed one-shot under skip is recorded",
			job:  `"schedule":{"delay":"5m"},"missed":{"policy":"skip"}`, slot: "03:00", now: "04:00",
			want: "skip 03:00:00..03:00:00 missed x1; done",
		},
		{
			name: "a missed one-shot under fire_all runs",
			job:  `"schedule":{"delay":"5m"},"missed":{"policy":"fire_all"}`, slot: "03:00", now: "04:00",
			want: "run 03:00:00 catchup late waits; done",
		},

		{
			name: "the last slot before ends_at is the last",
			job:  endsAt + `"2026-10-11T03:59:59Z"}`, slot: "03:00", now: "03:00:00.1",
			want: "run 03:00:00 schedule; done",
		},
		{
			name: "a slot at ends_at belongs",
			job:  endsAt + `"2026-10-11T04:00:00Z"}`, slot: "03:00", now: "03:00:00.1",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "an outage over ends_at ends with the last slot",
			job:  endsAt + `"2026-10-11T05:30:00Z"}`, slot: "03:00", now: "22:00",
			want: "skip 03:00:00..04:00:00 missed x2; run 05:00:00 catchup late; done",
		},

		{
			name: "an expired slot is recorded", job: hourly + `,"expires_after":"10s"`, slot: "03:00", now: "03:00:11",
			want: "skip 03:00:00..03:00:00 expired x1; next 04:00:00",
		},
		{
			name: "until then it runs", job: hourly + `,"expires_after":"10s"`, slot: "03:00", now: "03:00:10",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "catching up does not revive an expired slot",
			job:  hourly + `,"expires_after":"10m"`, slot: "03:00", now: "05:30",
			want: "skip 03:00:00..04:00:00 missed x2; skip 05:00:00..05:00:00 expired x1; next 06:00:00",
		},
		{
			name: "fire_all records what has expired and runs the rest",
			job:  hourly + `,"expires_after":"50m","missed":{"policy":"fire_all"}`, slot: "03:00", now: "05:30",
			want: "skip 03:00:00..03:00:00 expired x1; skip 04:00:00..04:00:00 expired x1; run 05:00:00 catchup late waits; next 06:00:00",
		},

		{
			name: "forbid records an overlap and names the run in the way",
			job:  forbid, slot: "03:00", now: "03:00", active: true,
			want: "skip 03:00:00..03:00:00 overlap x1 by the active run; next 04:00:00",
		},
		{
			name: "forbid runs when nothing is active", job: forbid, slot: "03:00", now: "03:00",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "fire_all under forbid runs one at a time", job: forbid + andFireAll, slot: "03:00", now: "05:30",
			want: "run 03:00:00 catchup late; next 04:00:00",
		},
		{
			name: "fire_all under forbid waits for the active run and skips nothing",
			job:  forbid + andFireAll, slot: "03:00", now: "05:30", active: true,
			want: "next 03:00:00 at 05:30:01",
		},
		{
			name: "what it waits with lies within the window",
			job:  forbid + `,"missed":{"policy":"fire_all","window":"2h"}`, slot: "01:00", now: "05:30", active: true,
			want: "skip 01:00:00..03:00:00 missed x3; next 04:00:00 at 05:30:01",
		},
		{
			name: "the last missed slot under forbid leads back to the schedule",
			job:  forbid + andFireAll, slot: "05:00", now: "05:30",
			want: "run 05:00:00 catchup late; next 06:00:00",
		},
		{
			name: "fire_all under forbid waits for the waiting run as well",
			job:  forbid + andFireAll, slot: "03:00", now: "05:30", waiting: true,
			want: "next 03:00:00 at 05:30:01",
		},
		{
			name: "forbid records an overlap with a run that waits",
			job:  forbid, slot: "03:00", now: "03:00", waiting: true,
			want: "skip 03:00:00..03:00:00 overlap x1 by the waiting run; next 04:00:00",
		},
		{
			name: "wait runs when nothing is active", job: wait, slot: "03:00", now: "03:00",
			want: "run 03:00:00 schedule; next 04:00:00",
		},
		{
			name: "wait has one run wait for the active one", job: wait, slot: "03:00", now: "03:00", active: true,
			want: "run 03:00:00 schedule waits; next 04:00:00",
		},
		{
			name: "wait records what comes while one waits",
			job:  wait, slot: "03:00", now: "03:00", active: true, waiting: true,
			want: "skip 03:00:00..03:00:00 overlap x1 by the waiting run; next 04:00:00",
		},
		{
			name: "wait never skips a slot to catch up", job: wait + andFireAll, slot: "03:00", now: "05:30", waiting: true,
			want: "next 03:00:00 at 05:30:01",
		},
		{
			name: "replace cancels the active run", job: replace, slot: "03:00", now: "03:00", active: true,
			want: "run 03:00:00 schedule waits; cancel the active run; next 04:00:00",
		},
		{
			name: "replace cancels what waits as well",
			job:  replace, slot: "03:00", now: "03:00", active: true, waiting: true,
			want: "run 03:00:00 schedule waits; cancel the active run; cancel the waiting run; next 04:00:00",
		},
		{
			name: "an expired slot replaces nothing",
			job:  replace + `,"expires_after":"1s"`, slot: "03:00", now: "03:00:02", active: true, waiting: true,
			want: "skip 03:00:00..03:00:00 expired x1; next 04:00:00",
		},
		{
			name: "catching up replaces nothing", job: replace + andFireAll, slot: "03:00", now: "05:30", waiting: true,
			want: "next 03:00:00 at 05:30:01",
		},
		{
			name: "fire_all makes no more runs than there is room for", job: fireAll, slot: "01:00", now: "05:30", room: 2,
			want: "run 01:00:00 catchup late waits; run 02:00:00 catchup late waits; next 03:00:00",
		},
		{
			name: "allow knows no overlap", job: hourly, slot: "03:00", now: "03:00", active: true,
			want: "run 03:00:00 schedule; next 04:00:00",
		},

		{
			name: "a thousand skipped slots are counted",
			job:  `"schedule":{"every":"1s"},"missed":{"policy":"skip"}`, slot: "03:00:00", now: "03:17:39.9",
			want: "skip 03:00:00..03:16:39 missed x1000; next 03:16:40",
		},
		{
			name: "more than a thousand are not",
			job:  `"schedule":{"every":"1s"},"missed":{"policy":"skip"}`, slot: "03:00:00", now: "03:17:40.9",
			want: "skip 03:00:00..03:16:40 missed x0; next 03:16:41",
		},
		{
			name: "a thousand skipped cron slots are counted",
			job:  `"schedule":{"cron":"* * * * * *"},"missed":{"policy":"skip"}`, slot: "03:00:00", now: "03:17:39.9",
			want: "skip 03:00:00..03:16:39 missed x1000; next 03:16:40",
		},
		{
			name: "more than a thousand cron slots are not",
			job:  `"schedule":{"cron":"* * * * * *"},"missed":{"policy":"skip"}`, slot: "03:00:00", now: "20:00:00.5",
			want: "skip 03:00:00..19:59:00 missed x0; next 19:59:01",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := Situation{Job: compiled(t, "{"+c.job+"}"), ScheduledFor: instant(t, c.slot), Now: instant(t, c.now)}
			if c.active {
				s.Active = []uuid.UUID{activeRun}
			}
			if c.waiting {
				s.Waiting = waitingRun
			}
			s.Room, s.Pending = c.room, c.pending
			if diff := cmp.Diff(c.want, describe(Decide(s))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			s.Memo = new(cron.Memo)
			if diff := cmp.Diff(c.want, describe(Decide(s))); diff != "" {
				t.Errorf("with a memo: -want +got:\n%s", diff)
			}
		})
	}
}

func TestDecideMeasuresLatenessFromWhenASlotWasDue(t *testing.T) {
	t.Parallel()
	job := compiled(t, `{"schedule":{"cron":"0 * * * *"},"jitter":"20m","expires_after":"10s"}`)
	slot, next := instant(t, "03:00"), instant(t, "04:00")
	offset := job.Timetable.Due(slot, nil).Sub(slot)
	if offset < 2*time.Minute {
		t.Fatalf("the offset of this job is %s, too small to see anything", offset)
	}
	inTime := Plan{
		Runs: []PlannedRun{{ScheduledFor: slot, DueAt: slot.Add(offset), Trigger: TriggerSchedule}}, Next: next,
		NextRunAt: next.Add(offset),
	}
	if diff := cmp.Diff(inTime, Decide(Situation{Job: job, ScheduledFor: slot, Now: slot.Add(offset)})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	expired := Decide(Situation{Job: job, ScheduledFor: slot, Now: slot.Add(offset + 11*time.Second)})
	if len(expired.Skips) != 1 || expired.Skips[0].Reason != ReasonExpired {
		t.Errorf("11 s after it was due: %s", describe(expired))
	}
	missed := Decide(Situation{Job: job, ScheduledFor: slot, Now: next.Add(offset - time.Microsecond)})
	if got := describe(missed); got != "skip 03:00:00..03:00:00 expired x1; next 04:00:00 at "+
		clockTime(next.Add(offset)) {
		t.Errorf("before the next one is due: %s", got)
	}
}

// A missed slot that is older than the history does not run, unless it is the only slot of its job.
func TestAMissedSlotOlderThanTheHistoryDoesNotRun(t *testing.T) {
	t.Parallel()
	for schedule, runs := range map[string]int{`{"cron":"0 3 1 * *"}`: 0, `{"at":"2026-10-01T03:00:00Z"}`: 1} {
		job := compiled(t, `{"schedule":`+schedule+`,"jitter":"0s"}`)
		job.Kept = 10 * 24 * time.Hour
		slot, now := instant(t, "2026-10-01T03:00:00Z"), instant(t, "2026-10-21T05:00:00Z")
		if plan := Decide(Situation{Job: job, ScheduledFor: slot, Now: now}); len(plan.Runs) != runs {
			t.Errorf("%s: %s", schedule, describe(plan))
		}
	}
}

func TestDecideIsQuickAfterALongOutage(t *testing.T) {
	t.Parallel()
	for _, policy := range []jobspec.MissedPolicy{jobspec.MissedSkip, jobspec.MissedFireOnce, jobspec.MissedFireAll} {
		job := compiled(t, `{"schedule":{"cron":"* * * * *"},"missed":{"policy":"`+string(policy)+`"}}`)
		s := Situation{Job: job, ScheduledFor: instant(t, "2025-10-11T00:00:00Z"), Now: instant(t, "00:30:30")}
		began := time.Now()
		const day = 24 * 60 // of the 365 that were missed
		for at, n := s.ScheduledFor, 0; n < day; n++ {
			slot, _ := job.Timetable.Next(at, nil)
			at = slot.At
		}
		walk := time.Since(began)
		var p Plan
		took := time.Duration(math.MaxInt64)
		for range 5 { // the machine may stand still in one
			began = time.Now()
			p = Decide(s)
			took = min(took, time.Since(began))
		}
		if took > 10*walk {
			t.Errorf("%s: a year of missed minutes took %s under lock, walking through a day of them takes %s",
				policy, took, walk)
		}
		if len(p.Skips) == 0 || p.Skips[0].Count != 0 {
			t.Errorf("%s: %s", policy, describe(p))
		}
	}
}

func TestSkipPassed(t *testing.T) {
	const bounded = `"schedule":{"cron":"0 * * * *","ends_at":"2026-10-11T05:00:00Z"},"jitter":"0s"`
	for _, c := range []struct{ name, job, slot, now, want string }{
		{"a slot that is not due is left alone", hourly, "03:00", "02:59:59.999", "next 03:00:00"},
		{"a slot due now has passed", hourly, "03:00", "03:00", "skip 03:00:00..03:00:00 paused x1; next 04:00:00"},
		{"all that passed are one skip", hourly, "03:00", "06:59", "skip 03:00:00..06:00:00 paused x4; next 07:00:00"},
		{
			"many are not counted", `"schedule":{"every":"1s"}`, "03:00:00", "05:00",
			"skip 03:00:00..05:00:00 paused x0; next 05:00:01",
		},
		{"none is left after ends_at", bounded, "03:00", "23:00", "skip 03:00:00..05:00:00 paused x3; done"},
		{"a one-shot is done", `"schedule":{"delay":"5m"}`, "03:00", "04:00", "skip 03:00:00..03:00:00 paused x1; done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := Situation{Job: compiled(t, "{"+c.job+"}"), ScheduledFor: instant(t, c.slot), Now: instant(t, c.now)}
			if diff := cmp.Diff(c.want, describe(SkipPassed(s, ReasonPaused))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	earlierRun := uuid.MustParse("0199c9a2-7b3c-8d10-9c3e-2f6f3f1d5a01")
	free, held := Gate{}, Gate{Active: []uuid.UUID{activeRun, earlierRun}}
	full, expired := held, held
	full.Waiting, expired.Waiting, expired.WaitingExpired = waitingRun, waitingRun, true
	over := []uuid.UUID{waitingRun}
	for _, c := range []struct {
		name   string
		gate   Gate
		policy jobspec.ConcurrencyPolicy
		want   Overlap
	}{
		{"allow goes on", full, jobspec.PolicyAllow, Overlap{}},
		{"forbid goes on when the gate is free", free, jobspec.PolicyForbid, Overlap{}},
		{"forbid is blocked by what is active", held, jobspec.PolicyForbid, Overlap{Blocker: activeRun, Waits: true}},
		{"forbid is blocked by what waits", Gate{Waiting: waitingRun}, jobspec.PolicyForbid, Overlap{Blocker: waitingRun}},
		{
			"forbid is not blocked by what has expired",
			Gate{Waiting: waitingRun, WaitingExpired: true},
			jobspec.PolicyForbid,
			Overlap{Expired: over},
		},
		{"wait goes on when the gate is free", free, jobspec.PolicyWait, Overlap{}},
		{"wait waits", held, jobspec.PolicyWait, Overlap{Waits: true}},
		{"wait is blocked by what waits", full, jobspec.PolicyWait, Overlap{Blocker: waitingRun, Waits: true}},
		{"wait takes the place of what has expired", expired, jobspec.PolicyWait, Overlap{Waits: true, Expired: over}},
		{"replace goes on when the gate is free", free, jobspec.PolicyReplace, Overlap{}},
		{
			"replace cancels all that are active and what waits",
			full, jobspec.PolicyReplace,
			Overlap{Waits: true, Cancel: []uuid.UUID{activeRun, earlierRun, waitingRun}},
		},
		{
			"replace cancels nothing that has expired",
			expired, jobspec.PolicyReplace,
			Overlap{Waits: true, Cancel: []uuid.UUID{activeRun, earlierRun}, Expired: over},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, c.gate.Overlap(c.policy)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
