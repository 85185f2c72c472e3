package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/cron"
)

func daily(zone string) func(*scheduler.Definition) {
	return func(d *scheduler.Definition) {
		d.Schedule = scheduler.Schedule{Cron: "0 3 * * *", Timezone: zone}
		d.Jitter = scheduler.DurationOf(0)
	}
}

func TestRezone(t *testing.T) {
	c := newClaimer(t)
	move := func(job uuid.UUID, slot, due time.Duration) time.Time {
		c.exec(`UPDATE punctual.schedules
			SET scheduled_for = date_trunc('second', now()) + $2::interval,
				next_run_at = date_trunc('second', now()) + $3::interval
			WHERE job_id = $1`, job, slot, due)
		at, _ := c.next(job)
		return at
	}
	zoned := c.create("zoned", daily("Europe/Berlin"))
	want, _ := c.next(zoned.ID)
	move(zoned.ID, time.Hour, time.Hour) // as if an older release of the zone data had computed it
	paused := c.create("paused", daily("Asia/Tokyo"))
	wantPaused, _ := c.next(paused.ID)
	if _, err := c.PauseJob(t.Context(), c.tenant, "paused", "", nil); err != nil {
		t.Fatal(err)
	}
	move(paused.ID, time.Hour, time.Hour)
	stay := map[string]time.Time{}
	for _, job := range []struct {
		name      string
		option    func(*scheduler.Definition)
		slot, due time.Duration
	}{
		{"a slot that is due", daily("Europe/Berlin"), -time.Second, -time.Second},
		{"a slot that jitter holds back", daily("Europe/Berlin"), -time.Second, time.Minute},
		{"a job without a zone", daily(""), time.Hour, time.Hour},
		{"a fixed period", every(time.Hour), 10 * time.Minute, 10 * time.Minute},
		{"a one-shot", delay(time.Hour), 10 * time.Minute, 10 * time.Minute},
	} {
		id := c.create(uuid.NewString()[:8], job.option).ID
		stay[job.name+"/"+id.String()] = move(id, job.slot, job.due)
	}
	moved, err := c.Rezone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if moved != 2 {
		t.Errorf("%d next slots moved, want 2", moved)
	}
	if slot, due := c.next(zoned.ID); !slot.Equal(want) || !due.Equal(want) {
		t.Errorf("the zoned job's next slot is %s, due %s; want %s", slot, due, want)
	}
	if slot, _ := c.next(paused.ID); !slot.Equal(wantPaused) {
		t.Errorf("the paused job's next slot is %s, want %s", slot, wantPaused)
	}
	for key, want := range stay {
		name, id := key[:len(key)-37], uuid.MustParse(key[len(key)-36:])
		if slot, _ := c.next(id); !slot.Equal(want) {
			t.Errorf("%s moved from %s to %s", name, want, slot)
		}
	}
	if c.count(`SELECT count(*) FROM punctual.deployment WHERE zone_data = $1`, cron.ZoneDataVersion()) != 1 {
		t.Error("the version is not written")
	}
	move(zoned.ID, time.Hour, time.Hour)
	if moved, err := c.Rezone(t.Context()); err != nil || moved != 0 {
		t.Errorf("a second time %d moved: %v", moved, err)
	}
}

func TestRezoneCoversAllJobs(t *testing.T) {
	c := newClaimer(t)
	const jobs = 2*rezoneBatch + 1
	c.many(jobs, "job", -time.Minute, daily("Europe/Berlin"))
	if moved, err := c.Rezone(t.Context()); err != nil || moved != jobs {
		t.Errorf("%d of %d moved: %v", moved, jobs, err)
	}
}
