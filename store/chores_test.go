package store_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler"
	"punctual/scheduler/domain"
	"punctual/store"
	"punctual/store/jobs"
)

// A chore without a period that no heartbeat names would never be done, and neither would one that is named otherwise.
func TestHeartbeatsAskForEveryChoreThatHasNoPeriod(t *testing.T) {
	t.Parallel()
	// The scheduler has these itself.
	handed := []string{scheduler.ChoreHolds, scheduler.ChoreNotices, scheduler.ChoreLifecycle}
	var asked []string
	for _, name := range regexp.MustCompile(`THEN '([^']+)' END`).FindAllStringSubmatch(store.ChoresDue, -1) {
		asked = append(asked, name[1])
	}
	for _, chore := range new(store.Store).Chores() {
		if chore.Every == 0 {
			handed = append(handed, chore.Name)
		}
	}
	slices.Sort(asked)
	slices.Sort(handed)
	if !slices.Equal(asked, handed) {
		t.Errorf("heartbeats ask for %v, and replicas are handed %v", asked, handed)
	}
}

// A heartbeat comes every two seconds. Between two of them a pause ends at its instant all the same.
func TestAPauseThatIsAboutToEndIsWaitedFor(t *testing.T) {
	c := NewFixture(t)
	c.Create("a")
	later := time.Now().Add(time.Hour)
	c.PauseWith("a", "", &later)
	if wait, left, err := c.Jobs.EndDuePauses(t.Context()); wait != 0 || left || err != nil || c.Wants(jobs.ChorePauses) {
		t.Errorf("an hour before: wait %s, left %t, error %v", wait, left, err)
	}
	c.Exec(`UPDATE punctual.jobs SET paused_until = clock_timestamp() + interval '1.5 s'`)
	wanted := c.Wants(jobs.ChorePauses)
	for {
		wait, left, err := c.Jobs.EndDuePauses(t.Context())
		if err != nil || wait > 1500*time.Millisecond || left != (wait > 0) {
			t.Fatalf("shortly before: wait %s, left %t, error %v", wait, left, err)
		}
		if !left {
			break
		}
		<-time.After(wait)
	}
	if job, err := c.Jobs.GetJob(t.Context(), c.Tenant, "a"); err != nil || job.State != domain.JobActive || !wanted {
		t.Errorf("a heartbeat asked for it: %t; then the job is %s (%v)", wanted, job.State, err)
	}
	if c.Wants(jobs.ChorePauses) {
		t.Error("a heartbeat asks for it although no pause ends")
	}
}
