package store

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

func (c crud) limit(column string, most any) {
	c.t.Helper()
	c.exec(`UPDATE punctual.tenants SET `+column+` = $1 WHERE id = $2`, most, c.tenant)
}

// full reports whether an error says that the tenant has reached its limit of jobs.
func full(err error) bool {
	refusal, is := errors.AsType[*domain.Refusal](err)
	return is && refusal.Code == "limit"
}

func TestATenantHasNoMoreJobsThanItMay(t *testing.T) {
	c := newCRUD(t)
	ctx := t.Context()
	c.create("before")
	c.limit("max_jobs", 3)
	c.create("second")
	c.create("done", at(time.Now().Add(-time.Hour)))
	c.complete(c.get("done").ID)
	paused := true
	if _, err := c.For(c.tenant).CreateJob(ctx, jobs.NewJob{Definition: definition("third"), Paused: &paused}); err != nil {
		t.Fatalf("a completed job counts: %v", err)
	}
	_, err := c.tryCreate("fourth")
	if !full(err) || !strings.Contains(err.Error(), "has 3 active and paused jobs of at most 3") {
		t.Fatalf("error %v", err)
	}
	if _, err := c.tryPut(definition("fourth")); !full(err) {
		t.Errorf("PUT of another: error %v", err)
	}
	if _, err := c.createMany(jobs.ConflictSkip, definition("fourth")); !full(err) {
		t.Errorf("a batch: error %v", err)
	}
	if _, err := c.tryPut(definition("done", every(time.Hour))); !full(err) {
		t.Errorf("PUT that starts a completed job again: error %v", err)
	}
	if got := c.get("done"); got.State != domain.JobCompleted {
		t.Errorf("then it is %s", got.State)
	}
	if _, err := c.tryPut(definition("second", every(2*time.Hour))); err != nil {
		t.Errorf("PUT of one that is there: %v", err)
	}
	if _, err := c.createMany(jobs.ConflictReplace, definition("second", every(3*time.Hour))); err != nil {
		t.Errorf("a batch that replaces one that is there: %v", err)
	}
	c.deleteJob("before")
	if _, err := c.tryPut(definition("done", every(time.Hour))); err != nil {
		t.Errorf("with room, PUT of a completed job: %v", err)
	}
	c.limit("max_jobs", nil)
	c.create("another")
	c.limit("max_jobs", 4) // jobs that were written meanwhile count
	if _, err := c.tryCreate("fifth"); !full(err) {
		t.Errorf("after a time without a limit: error %v", err)
	}
}

func TestCreatesAtTheSameTimeFillALimitExactly(t *testing.T) {
	c := newCRUD(t)
	c.limit("max_jobs", 25)
	var created, refused atomic.Int32
	var creating sync.WaitGroup
	for i := range 40 {
		creating.Go(func() {
			name := fmt.Sprint("job-", i)
			var err error
			if i%2 == 0 {
				_, err = c.tryCreate(name)
			} else {
				_, err = c.createMany(jobs.ConflictError, definition(name))
			}
			switch {
			case err == nil:
				created.Add(1)
			case full(err):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	creating.Wait()
	if n := c.count(`SELECT count(*) FROM punctual.jobs`); created.Load() != 25 || refused.Load() != 15 || n != 25 {
		t.Errorf("%d created, %d refused, %d jobs", created.Load(), refused.Load(), n)
	}
}

func TestSlotsComeNoCloserThanATenantsMay(t *testing.T) {
	c := newCRUD(t)
	c.create("before", every(time.Minute))
	c.limit("min_interval", 5*time.Minute)
	for name, test := range map[string]struct {
		schedule option
		refused  string
	}{
		"every five minutes":      {every(5 * time.Minute), ""},
		"every minute":            {every(time.Minute), "schedule.every: "},
		"cron, each five minutes": {cronAt("*/5 * * * *"), ""},
		"cron, now and then less": {cronAt("0,57 3 * * *"), ""},
		"cron, 3 minutes apart":   {cronAt("57,0 * * * *"), "schedule.cron: "},
		"once":                    {delay(time.Second), ""},
	} {
		_, err := c.tryCreate(strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-"), test.schedule)
		if (test.refused == "") != (err == nil) ||
			err != nil && (len(domain.BlamesOf(err)) == 0 || !strings.HasPrefix(err.Error(), test.refused)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := c.tryEdit("before", described("as it was")); err != nil {
		t.Errorf("an edit of something else: %v", err)
	}
	if _, err := c.tryEdit("before", every(2*time.Minute)); err == nil {
		t.Error("an edit of the schedule was not refused")
	}
}

// A tenant may have a million jobs. They are counted as far as its limit needs, and to 10,000 at least.
func TestJobsAreCountedAsFarAsNeeded(t *testing.T) {
	c := newClaimer(t)
	c.many(10_050, "job", -1e15)
	for most, want := range map[int]int{0: 10_000, 5: 10_000, 10_020: 10_020, 20_000: 10_050} {
		t.Run(fmt.Sprint("max_jobs ", most), func(t *testing.T) {
			tenant := tenants.Tenant{ID: c.tenant, Name: "default"}
			if most > 0 {
				tenant.MaxJobs = &most
			}
			if n, err := c.Tenants.CountJobs(t.Context(), tenant); err != nil || n != want {
				t.Errorf("%d jobs, want %d, %v", n, want, err)
			}
		})
	}
}
