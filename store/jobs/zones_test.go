package jobs_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	. "punctual/internal/storetest"
	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

func daily(zone string) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Cron: "0 3 * * *", Timezone: zone}
		d.Jitter = jobspec.DurationOf(0)
	}
}

func TestRezone(t *testing.T) {
	c := NewReplica(t)
	move := func(job uuid.UUID, slot, due time.Duration) time.Time {
		c.Exec(`UPDATE punctual.schedules
			SET scheduled_for = date_trunc('second', now()) + $2::interval,
				next_run_at = date_trunc('second', now()) + $3::interval
			WHERE job_id = $1`, job, slot, due)
		at, _ := c.Next(job)
		return at
	}
	zoned := c.Create("zoned", daily("Europe/Berlin"))
	want, _ := c.Next(zoned.ID)
	move(zoned.ID, time.Hour, time.Hour) // as if an older release of the zone data had computed it
	paused := c.Create("paused", daily("Asia/Tokyo"))
	wantPaused, _ := c.Next(paused.ID)
	c.Pause("paused")
	move(paused.ID, time.Hour, time.Hour)
	local := c.Create("once", func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Timezone: "Europe/Berlin"}
		_ = d.Schedule.At.UnmarshalText([]byte("2126-07-01T09:00:00"))
	})
	wantLocal, _ := c.Next(local.ID)
	move(local.ID, time.Hour, time.Hour)
	stay := map[string]time.Time{}
	for _, job := range []struct {
		name      string
		option    Option
		slot, due time.Duration
	}{
		{"a slot that is due", daily("Europe/Berlin"), -time.Second, -time.Second},
		{"a slot that jitter holds back", daily("Europe/Berlin"), -time.Second, time.Minute},
		{"a job without a zone", daily(""), time.Hour, time.Hour},
		{"a fixed period", Every(time.Hour), 10 * time.Minute, 10 * time.Minute},
		{"a one-shot", Delay(time.Hour), 10 * time.Minute, 10 * time.Minute},
	} {
		id := c.Create(uuid.NewString()[:8], job.option).ID
		stay[job.name+"/"+id.String()] = move(id, job.slot, job.due)
	}
	moved, err := c.Jobs.Rezone(t.Context())
	Must(t, err)
	if moved != 3 {
		t.Errorf("%d next slots moved, want 3", moved)
	}
	if slot, due := c.Next(zoned.ID); !slot.Equal(want) || !due.Equal(want) {
		t.Errorf("the zoned job's next slot is %s, due %s; want %s", slot, due, want)
	}
	if slot, _ := c.Next(paused.ID); !slot.Equal(wantPaused) {
		t.Errorf("the paused job's next slot is %s, want %s", slot, wantPaused)
	}
	if slot, _ := c.Next(local.ID); !slot.Equal(wantLocal) {
		t.Errorf("the next slot of the one-shot by local time is %s, want %s", slot, wantLocal)
	}
	for key, want := range stay {
		name, id := key[:len(key)-37], uuid.MustParse(key[len(key)-36:])
		if slot, _ := c.Next(id); !slot.Equal(want) {
			t.Errorf("%s moved from %s to %s", name, want, slot)
		}
	}
	if c.Count(`SELECT count(*) FROM punctual.deployment WHERE zone_data = $1`, cron.Zones().Release) != 1 {
		t.Error("the version is not written")
	}
	move(zoned.ID, time.Hour, time.Hour)
	if moved, err := c.Jobs.Rezone(t.Context()); err != nil || moved != 0 {
		t.Errorf("a second time %d moved: %v", moved, err)
	}
}

func TestRezoneCoversAllJobs(t *testing.T) {
	c := NewReplica(t)
	const jobs = 401 // more than two transactions
	c.Many(jobs, "job", -time.Minute, daily("Europe/Berlin"))
	if moved, err := c.Jobs.Rezone(t.Context()); err != nil || moved != jobs {
		t.Errorf("%d of %d moved: %v", moved, jobs, err)
	}
}

// While replicas with older zone data are live, they go on computing slots with it.
func TestSlotsOfOlderZoneDataAreComputedAgainWhenItsReplicasAreGone(t *testing.T) {
	c := NewReplica(t)
	job := c.Create("job", daily("Europe/Berlin"))
	want, _ := c.Next(job.ID)
	byOther := func() { // as a replica with other data computes it
		c.Exec(`UPDATE punctual.schedules SET scheduled_for = scheduled_for + interval '1 h',
			next_run_at = next_run_at + interval '1 h' WHERE job_id = $1`, job.ID)
	}
	rezoned := func(when string, wantMoved int) {
		t.Helper()
		moved, err := c.Jobs.Rezone(t.Context())
		if err != nil || moved != wantMoved {
			t.Errorf("%s: %d next slots moved, %v; want %d", when, moved, err, wantMoved)
		}
	}
	other := func(data string) {
		c.Exec(`DELETE FROM punctual.replicas WHERE host = 'other'`)
		c.Exec(`INSERT INTO punctual.replicas (id, host, version, queues, zone_data)
			VALUES (gen_random_uuid(), 'other', 'v', '{}', $1)`, data)
	}
	gone := func() { c.Exec(`DELETE FROM punctual.replicas WHERE host = 'other'`) }

	other("2000a")
	byOther()
	rezoned("at the start", 1)
	byOther()
	rezoned("while a replica with older data is live", 0)
	gone()
	rezoned("when it is gone", 1)
	byOther()
	rezoned("from then on", 0)

	other("2000a")
	rezoned("when one starts again", 0)
	gone()
	rezoned("when that is gone too", 1)

	c.Exec(`UPDATE punctual.deployment SET zone_data = '2000a'`)
	other("2000a")
	byOther()
	rezoned("at the start of a short upgrade", 1)
	byOther()
	gone()
	rezoned("when it has ended", 1)

	c.Exec(`UPDATE punctual.deployment SET zone_data = '9999a'`)
	other("9999a")
	byOther()
	rezoned("beside a replica with newer data", 0)
	gone()
	rezoned("after a return to the version before", 1)
	if slot, due := c.Next(job.ID); !slot.Equal(want) || !due.Equal(want) {
		t.Errorf("the next slot is %s, due %s; want %s", slot, due, want)
	}
}

// A row that somebody has locked holds up neither the others nor the start of a replica.
func TestALockedJobIsRezonedTheNextTime(t *testing.T) {
	c := NewReplica(t)
	c.Many(3, "job", -time.Minute, daily("Europe/Berlin"))
	release := c.Stranger(`schedules WHERE job_id = (SELECT min(job_id::text)::uuid FROM punctual.schedules)`)
	if moved, err := c.Jobs.Rezone(Bounded(t)); err != nil || moved != 2 {
		t.Errorf("%d of 2 moved: %v", moved, err)
	}
	release()
	if moved, err := c.Jobs.Rezone(t.Context()); err != nil || moved != 1 {
		t.Errorf("%d of 1 moved afterwards: %v", moved, err)
	}
}
