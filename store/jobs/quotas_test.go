package jobs_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/tenants"
)

// full reports whether an error says that the tenant has reached its limit of jobs.
func full(err error) bool {
	refusal, is := errors.AsType[*jobspec.Refusal](err)
	return is && refusal.Code == "limit"
}

func TestATenantHasNoMoreJobsThanItMay(t *testing.T) {
	c := NewFixture(t)
	ctx := t.Context()
	c.Create("before")
	c.Limit("max_jobs", 3)
	c.Create("second")
	c.Create("done", At(time.Now().Add(-time.Hour)))
	c.Complete(c.Get("done").ID)
	paused := true
	if _, err := c.For(c.Tenant).CreateJob(ctx, jobs.NewJob{Definition: Definition("third"), Paused: &paused}); err != nil {
		t.Fatalf("a completed job counts: %v", err)
	}
	_, err := c.TryCreate("fourth")
	if !full(err) || !strings.Contains(err.Error(), "has 3 active and paused jobs of at most 3") {
		t.Fatalf("error %v", err)
	}
	if _, err := c.TryPut(Definition("fourth")); !full(err) {
		t.Errorf("PUT of another: error %v", err)
	}
	if _, err := c.CreateMany(jobs.ConflictSkip, Definition("fourth")); !full(err) {
		t.Errorf("a batch: error %v", err)
	}
	if _, err := c.TryPut(Definition("done", Every(time.Hour))); !full(err) {
		t.Errorf("PUT that starts a completed job again: error %v", err)
	}
	if got := c.Get("done"); got.State != domain.JobCompleted {
		t.Errorf("then it is %s", got.State)
	}
	if _, err := c.TryPut(Definition("second", Every(2*time.Hour))); err != nil {
		t.Errorf("PUT of one that is there: %v", err)
	}
	if _, err := c.CreateMany(jobs.ConflictReplace, Definition("second", Every(3*time.Hour))); err != nil {
		t.Errorf("a batch that replaces one that is there: %v", err)
	}
	c.DeleteJob("before")
	if _, err := c.TryPut(Definition("done", Every(time.Hour))); err != nil {
		t.Errorf("with room, PUT of a completed job: %v", err)
	}
	c.Limit("max_jobs", nil)
	c.Create("another")
	c.Limit("max_jobs", 4) // jobs that were written meanwhile count
	if _, err := c.TryCreate("fifth"); !full(err) {
		t.Errorf("after a time without a limit: error %v", err)
	}
}

func TestCreatesAtTheSameTimeFillALimitExactly(t *testing.T) {
	c := NewFixture(t)
	c.Limit("max_jobs", 25)
	var created, refused atomic.Int32
	var creating sync.WaitGroup
	for i := range 40 {
		creating.Go(func() {
			name := fmt.Sprint("job-", i)
			var err error
			if i%2 == 0 {
				_, err = c.TryCreate(name)
			} else {
				_, err = c.CreateMany(jobs.ConflictError, Definition(name))
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
	if n := c.Count(`SELECT count(*) FROM punctual.jobs`); created.Load() != 25 || refused.Load() != 15 || n != 25 {
		t.Errorf("%d created, %d refused, %d jobs", created.Load(), refused.Load(), n)
	}
}

func TestSlotsComeNoCloserThanATenantsMay(t *testing.T) {
	c := NewFixture(t)
	c.Create("before", Every(time.Minute))
	c.Limit("min_interval", 5*time.Minute)
	for name, test := range map[string]struct {
		schedule Option
		refused  string
	}{
		"every five minutes":      {Every(5 * time.Minute), ""},
		"every minute":            {Every(time.Minute), "schedule.every: "},
		"cron, each five minutes": {cronAt("*/5 * * * *"), ""},
		"cron, now and then less": {cronAt("0,57 3 * * *"), ""},
		"cron, 3 minutes apart":   {cronAt("57,0 * * * *"), "schedule.cron: "},
		"once":                    {Delay(time.Second), ""},
	} {
		_, err := c.TryCreate(strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-"), test.schedule)
		if (test.refused == "") != (err == nil) ||
			err != nil && (len(jobspec.BlamesOf(err)) == 0 || !strings.HasPrefix(err.Error(), test.refused)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := c.TryEdit("before", Described("as it was")); err != nil {
		t.Errorf("an edit of something else: %v", err)
	}
	if _, err := c.TryEdit("before", Every(2*time.Minute)); err == nil {
		t.Error("an edit of the schedule was not refused")
	}
}

// A tenant may have a million jobs. They are counted as far as its limit needs, and to 10,000 at least.
func TestJobsAreCountedAsFarAsNeeded(t *testing.T) {
	c := NewReplica(t)
	c.Many(10_050, "job", -1e15)
	for most, want := range map[int]int{0: 10_000, 5: 10_000, 10_020: 10_020, 20_000: 10_050} {
		t.Run(fmt.Sprint("max_jobs ", most), func(t *testing.T) {
			tenant := tenants.Tenant{ID: c.Tenant, Name: "default"}
			if most > 0 {
				tenant.MaxJobs = &most
			}
			if n, err := c.Tenants.CountJobs(t.Context(), tenant); err != nil || n != want {
				t.Errorf("%d jobs, want %d, %v", n, want, err)
			}
		})
	}
}
