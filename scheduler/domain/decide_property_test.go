package domain

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

// drawnSchedule is a schedule with all its slots over some days. They are found step by step, without Timetable.
type drawnSchedule struct {
	json  string
	slots []time.Time
	ended bool // the schedule ends with the last of slots
}

// drawSchedule draws a schedule. A rule that shares no code with Timetable decides which instants are slots.
func drawSchedule(t *rapid.T) drawnSchedule {
	start := time.Date(2026, 10, 11, 0, 0, 0, 0, time.UTC).
		Add(time.Duration(rapid.IntRange(0, 86400).Draw(t, "start")) * time.Second)
	var d drawnSchedule
	var step time.Duration
	matches := func(time.Time) bool { return true }
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0: // a fixed period that counts from the epoch
		step = time.Duration(rapid.SampledFrom([]int{1, 7, 60, 90, 3600, 7261}).Draw(t, "every")) * time.Second
		d.json = fmt.Sprintf(`"every":"%ds"`, int(step.Seconds()))
		start = time.Unix((start.Unix()+int64(step.Seconds())-1)/int64(step.Seconds())*int64(step.Seconds()), 0).UTC()
	case 1: // a fixed period that counts from starts_at
		step = time.Duration(rapid.SampledFrom([]int{1, 7, 60, 90, 3600, 7261}).Draw(t, "every")) * time.Second
		d.json = fmt.Sprintf(`"every":"%ds","starts_at":%q`, int(step.Seconds()), start.Format(time.RFC3339))
	case 2: // seconds
		step = time.Second
		n := rapid.SampledFrom([]int{1, 10, 30}).Draw(t, "seconds")
		d.json = fmt.Sprintf(`"cron":"*/%d * * * * *"`, n)
		matches = func(at time.Time) bool { return at.Second()%n == 0 }
	default: // minutes, and perhaps hours, in a zone without clock changes in these days
		step = time.Minute
		start = start.Truncate(step).Add(step)
		zone := rapid.SampledFrom([]string{"UTC", "America/New_York", "Asia/Kathmandu"}).Draw(t, "zone")
		location, err := cron.LoadZone(zone)
		must(t, err)
		minute := rapid.SampledFrom([]int{1, 5, 20, 60}).Draw(t, "minutes")
		from := rapid.SampledFrom([]int{0, 3, 22}).Draw(t, "from hour")
		hours := map[int]string{0: "*", 3: "3-23", 22: "22-23"}[from]
		d.json = fmt.Sprintf(`"cron":"*/%d %s * * *","timezone":%q`, minute, hours, zone)
		if minute == 60 {
			d.json = fmt.Sprintf(`"cron":"0 %s * * *","timezone":%q`, hours, zone)
		}
		matches = func(at time.Time) bool {
			wall := at.In(location)
			return wall.Minute()%minute == 0 && wall.Hour() >= from
		}
	}
	end := start.Add(30 * time.Hour)
	if rapid.Bool().Draw(t, "ends") {
		end = start.Add(time.Duration(rapid.IntRange(0, 26*3600).Draw(t, "end")) * time.Second)
		d.json += fmt.Sprintf(`,"ends_at":%q`, end.Format(time.RFC3339))
		d.ended = true
	}
	for at := start; !at.After(end) && len(d.slots) < 4000; at = at.Add(step) {
		if matches(at) {
			d.slots = append(d.slots, at)
		}
	}
	if len(d.slots) == 4000 {
		d.ended = false
	}
	return d
}

// simulation applies plans to a job and keeps the slots that no plan has accounted for yet.
type simulation struct {
	job   *Job
	left  []time.Time
	ended bool
}

func drawSimulation(t *rapid.T) *simulation {
	schedule := drawSchedule(t)
	if len(schedule.slots) < 4 {
		t.Skip("too few slots")
	}
	text := fmt.Sprintf(
		`{"name":"job","target":{"url":"http://127.0.0.1:9"},"schedule":{%s},"jitter":%q,"concurrency_policy":%q,"missed":{"policy":%q,"tolerance":%q%s}`,
		schedule.json,
		rapid.SampledFrom([]string{"0s", "10s", "2h"}).Draw(t, "jitter"),
		rapid.SampledFrom([]string{"allow", "forbid"}).Draw(t, "concurrency"),
		rapid.SampledFrom([]string{"skip", "fire_once", "fire_all"}).Draw(t, "missed"),
		rapid.SampledFrom([]string{"1s", "60s", "1h"}).Draw(t, "tolerance"),
		rapid.SampledFrom([]string{``, `,"window":"1s"`, `,"window":"10m"`, `,"window":"24h"`}).Draw(t, "window"),
	)
	if rapid.Bool().Draw(t, "expires") {
		text += fmt.Sprintf(`,"expires_after":%q`, rapid.SampledFrom([]string{"1ms", "30s", "2h"}).Draw(t, "expires after"))
	}
	id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "job"))
	return &simulation{job: compiledAs(t, id, text+"}"), left: schedule.slots, ended: schedule.ended}
}

// due returns when the i-th remaining slot is due by the rule: the slot plus the job's fraction of the jitter, or of
// half the gap to the next slot if that is shorter.
func (s *simulation) due(i int) time.Time {
	jitter := s.job.Jitter.Value()
	if jitter == 0 {
		return s.left[i]
	}
	if i+1 < len(s.left) {
		jitter = min(jitter, s.left[i+1].Sub(s.left[i])/2)
	}
	offset := new(big.Int).Mul(new(big.Int).SetUint64(jobspec.HashOf(s.job.ID)), big.NewInt(int64(jitter)))
	return s.left[i].Add(time.Duration(offset.Rsh(offset, 64).Int64()).Truncate(time.Microsecond))
}

// want returns the plan that the rules give, slot by slot, and how many slots it accounts for.
func (s *simulation) want(now time.Time, active uuid.UUID) (p Plan, settled int) {
	missed := 0
	for missed < len(s.left) && s.due(missed).Before(now.Add(-s.job.Missed.Tolerance.Value())) {
		missed++
	}
	skip := func(reason Reason, first, last int) {
		k := Skip{Reason: reason, First: s.left[first], Last: s.left[last], Count: last - first + 1}
		if k.Count > 1000 {
			k.Count = 0
		}
		if reason == ReasonOverlap {
			k.BlockedBy = active
		}
		p.Skips = append(p.Skips, k)
	}
	fire := func(i int, late bool) {
		switch {
		case !s.job.ExpiresAfter.IsZero() && now.Sub(s.due(i)) > s.job.ExpiresAfter.Value():
			skip(ReasonExpired, i, i)
		case active != uuid.Nil && s.job.ConcurrencyPolicy == jobspec.PolicyForbid:
			skip(ReasonOverlap, i, i)
		default:
			trigger := TriggerSchedule
			if late {
				trigger = TriggerCatchup
			}
			p.Runs = append(p.Runs, PlannedRun{
				ScheduledFor: s.left[i], DueAt: s.due(i), Trigger: trigger, Late: late,
				Waits: late && s.job.Missed.Policy == jobspec.MissedFireAll && s.job.ConcurrencyPolicy == jobspec.PolicyAllow,
			})
		}
	}
	beyond := 0 // missed slots before the window
	window, within := s.job.Missed.Window.Value(), 0
	if window == 0 { // by default the newest runs, however old
		window, within = 24*time.Hour, 1
	}
	for beyond < missed-within && s.left[beyond].Before(now.Add(-window)) {
		beyond++
	}
	limit := slotsPerClaim
	if s.job.ConcurrencyPolicy == jobspec.PolicyForbid {
		limit = 1
	}
	switch {
	case missed == 0:
		for settled < limit && settled < len(s.left) && !s.due(settled).After(now) {
			fire(settled, false)
			settled++
		}
	case s.job.Missed.Policy == jobspec.MissedSkip || s.job.Missed.Policy == jobspec.MissedFireOnce && beyond == missed:
		skip(ReasonMissed, 0, missed-1)
		settled = missed
	case s.job.Missed.Policy == jobspec.MissedFireOnce:
		if missed > 1 {
			skip(ReasonMissed, 0, missed-2)
		}
		fire(missed-1, true)
		settled = missed
	default:
		if beyond > 0 {
			skip(ReasonMissed, 0, beyond-1)
		}
		if s.job.ConcurrencyPolicy == jobspec.PolicyForbid && active != uuid.Nil && beyond < missed {
			p.Next, p.NextRunAt = s.left[beyond], now.Add(deferral)
			return p, beyond
		}
		for settled = beyond; settled < missed && settled < beyond+limit; settled++ {
			fire(settled, true)
		}
	}
	if settled == len(s.left) {
		p.Done = true
		return p, settled
	}
	p.Next, p.NextRunAt = s.left[settled], s.due(settled)
	return p, settled
}

// For any schedule, policies and outages, each plan is the one that the rules give when they look at every slot by
// itself. So every slot is accounted for exactly once, in order and never early.
func TestDecideAccountsForEverySlotOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSimulation(t)
		now := s.due(0)
		var accounted []time.Time
		all := s.left
		for claim := 0; claim < 30 && (len(s.left) > 3 || s.ended && len(s.left) > 0); claim++ {
			if late := rapid.IntRange(0, 9).Draw(t, "late"); late == 9 {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "outage")))
			} else {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "lateness")))
			}
			if !s.ended && now.After(s.due(len(s.left)-3)) {
				now = s.due(len(s.left) - 3) // the slots beyond are not known
				if now.Before(s.due(0)) {
					return
				}
			}
			active := uuid.Nil
			situation := Situation{Job: s.job, ScheduledFor: s.left[0], Now: now}
			if rapid.Bool().Draw(t, "a run is active") {
				active = activeRun
				situation.Active = []uuid.UUID{active}
			}
			if rapid.Bool().Draw(t, "memo") {
				situation.Memo = new(cron.Memo)
			}
			want, settled := s.want(now, active)
			got := Decide(situation)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("slot %s, now %s, -want +got:\n%s", clockTime(s.left[0]), clockTime(now), diff)
			}
			accounted = append(accounted, slotsOf(t, got, s.left)...)
			s.left = s.left[settled:]
			if got.Done {
				break
			}
			if got.NextRunAt.After(now) {
				now = got.NextRunAt
			}
		}
		if diff := cmp.Diff(all[:len(all)-len(s.left)], accounted); diff != "" {
			t.Fatalf("slots accounted for, -want +got:\n%s", diff)
		}
	})
}

// slotsOf lists the slots that a plan's runs and skips account for, in order.
func slotsOf(t *rapid.T, p Plan, among []time.Time) []time.Time {
	var slots []time.Time
	for _, at := range among {
		n := 0
		for _, r := range p.Runs {
			if r.ScheduledFor.Equal(at) {
				n++
			}
		}
		for _, k := range p.Skips {
			if !at.Before(k.First) && !at.After(k.Last) {
				n++
			}
		}
		if n > 1 {
			t.Fatalf("slot %s is accounted for %d times", clockTime(at), n)
		}
		if n == 1 {
			slots = append(slots, at)
		}
	}
	return slots
}

func TestSkipPassedAccountsForEverySlotThatIsDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSimulation(t)
		now := s.left[0].Add(time.Duration(rapid.Int64Range(-int64(time.Hour), int64(30*time.Hour)).Draw(t, "now")))
		if !s.ended && now.After(s.due(len(s.left)-3)) {
			now = s.due(len(s.left) - 3)
		}
		passed := 0
		for passed < len(s.left) && !s.due(passed).After(now) {
			passed++
		}
		want := Plan{}
		if passed > 0 {
			want.Skips = []Skip{{Reason: ReasonPaused, First: s.left[0], Last: s.left[passed-1], Count: passed}}
			if passed > 1000 {
				want.Skips[0].Count = 0
			}
		}
		if passed < len(s.left) {
			want.Next, want.NextRunAt = s.left[passed], s.due(passed)
		} else {
			want.Done = true
		}
		if diff := cmp.Diff(
			want, SkipPassed(Situation{Job: s.job, ScheduledFor: s.left[0], Now: now}, ReasonPaused),
		); diff != "" {
			t.Fatalf("slot %s, now %s, -want +got:\n%s", clockTime(s.left[0]), clockTime(now), diff)
		}
	})
}
