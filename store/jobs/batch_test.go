package jobs_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

func TestCreateJobs(t *testing.T) {
	t.Parallel()
	past := time.Now().Add(-time.Minute)
	t.Run("writes them in the order given", func(t *testing.T) {
		c := NewFixture(t)
		results, err := c.CreateMany(jobs.ConflictError,
			Definition("c", Forbid), Definition("a", At(past)), Definition("b", Never))
		Must(t, err)
		for i, name := range []string{"c", "a", "b"} {
			if results[i].Name != name || c.Get(name).ID != results[i].ID {
				t.Errorf("%d is %+v", i, results[i])
			}
		}
		if !c.Woken() || c.Count(`SELECT count(*) FROM punctual.exclusive`) != 1 {
			t.Error("the tick loop was not told, or the gate is missing")
		}
	})
	t.Run("writes none when some cannot be, and says which", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("taken")
		for name, list := range map[string][]jobs.NewJob{
			"invalid": Batch(Definition("a"),
				Definition("b", func(d *jobspec.Definition) { d.Queue = "nowhere" }), Definition("a")),
			"taken": Batch(Definition("a"), Definition("taken"), Definition("taken")),
		} {
			_, err := c.For(c.Tenant).CreateJobs(t.Context(), list, jobs.ConflictError)
			var bad *jobs.BatchError
			if !errors.As(err, &bad) ||
				!slices.Equal(slices.Sorted(maps.Keys(bad.Errors)), map[string][]int{"invalid": {1, 2}, "taken": {2}}[name]) {
				t.Errorf("%s: %v %v", name, err, bad)
			}
		}
		_, err := c.CreateMany(jobs.ConflictError, Definition("a"), Definition("taken"))
		var bad *jobs.BatchError
		if !errors.As(err, &bad) || !errors.Is(bad.Errors[1], jobs.ErrNameTaken) || len(bad.Errors) != 1 {
			t.Errorf("%v", err)
		}
		c.WantCount(1, "jobs", `SELECT count(*) FROM punctual.jobs`)
	})
	t.Run("takes the names that completed jobs still have", func(t *testing.T) {
		c := NewFixture(t)
		c.Complete(c.Create("b", At(past)).ID)
		results, err := c.CreateMany(jobs.ConflictError, Definition("a"), Definition("b"), Definition("c"))
		Must(t, err)
		for i, name := range []string{"a", "b", "c"} {
			if got := c.Get(name); got.ID != results[i].ID || got.State != domain.JobActive {
				t.Errorf("%s is %+v, not %+v", name, got, results[i])
			}
		}
		for written, want := range map[string]int{"jobs": 4, "job_versions": 4, "schedules": 3, "audit_log": 4} { // b twice
			if n := c.Count(`SELECT count(*) FROM punctual.` + written); n != want {
				t.Errorf("%d rows in %s, want %d", n, written, want)
			}
		}
	})
	t.Run("says that names are taken before it says that a limit is reached", func(t *testing.T) {
		c := NewFixture(t)
		c.Create("taken")
		c.Limit("max_jobs", 2)
		_, err := c.CreateMany(jobs.ConflictError, Definition("a"), Definition("taken"))
		var bad *jobs.BatchError
		if !errors.As(err, &bad) || !slices.Equal(slices.Sorted(maps.Keys(bad.Errors)), []int{1}) {
			t.Errorf("%v", err)
		}
	})
	t.Run("skips what is there", func(t *testing.T) {
		c := NewFixture(t)
		old := c.Create("a")
		results, err := c.CreateMany(jobs.ConflictSkip, Definition("a", Described("x")), Definition("b"))
		if err != nil || results[0].ID != old.ID || c.Get("a").Version != 1 || c.Get("b").ID != results[1].ID {
			t.Errorf("%+v, %v", results, err)
		}
	})
	t.Run("sent again, does not fire an instant twice", func(t *testing.T) {
		for _, on := range []jobs.OnConflict{jobs.ConflictSkip, jobs.ConflictReplace} {
			t.Run(string(on), func(t *testing.T) {
				c := NewFixture(t)
				old := c.Create("a", At(past))
				c.Complete(old.ID)
				results, err := c.CreateMany(on, Definition("a", At(past)))
				if err != nil || results[0].ID != old.ID || c.Get("a").State != domain.JobCompleted {
					t.Errorf("%+v, %v", results, err)
				}
			})
		}
	})
	t.Run("replaces what is there, where it differs", func(t *testing.T) {
		c := NewFixture(t)
		same, other, due := c.Create("same"), c.Create("other"), c.Create("due")
		c.SlotAgo(due.ID, time.Second)
		results, err := c.CreateMany(jobs.ConflictReplace,
			Definition("new"), Definition("other", Every(2*time.Hour)), Definition("same"),
			Definition("due", Every(3*time.Hour)))
		if err != nil || results[1].ID != other.ID || results[2].ID != same.ID {
			t.Fatalf("%+v, %v", results, err)
		}
		if c.Get("same").Version != 1 || c.Get("other").Version != 2 ||
			c.Get("other").Definition.Schedule.Every.Value() != 2*time.Hour {
			t.Error("wrong versions")
		}
		c.WantHistory(due.ID, "schedule pending")
	})
	t.Run("concurrent batches with the same names write each once", func(t *testing.T) {
		c := NewFixture(t)
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				list := make([]jobs.NewJob, 50)
				for i := range list {
					list[i].Definition = Definition(fmt.Sprintf("j%d", (i*7+n*13)%50))
				}
				results, err := c.For(c.Tenant).CreateJobs(t.Context(), list, jobs.ConflictSkip)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range results {
					if c.Get(r.Name).ID != r.ID {
						t.Errorf("%+v is not the job of that name", r)
					}
				}
			})
		}
		wg.Wait()
		c.WantCount(50, "jobs", `SELECT count(*) FROM punctual.jobs`)
	})
}

func BenchmarkCreateJobs(b *testing.B) {
	s := OpenBench(b)
	tenant, err := s.Tenants.TenantID(b.Context(), "default")
	Must(b, err)
	n := 0
	for b.Loop() {
		list := make([]jobs.NewJob, 1000)
		for i := range list {
			n++
			list[i].Definition = Definition(fmt.Sprintf("job-%d", n), func(d *jobspec.Definition) {
				d.Schedule = jobspec.Schedule{Cron: fmt.Sprintf("%d %d * * *", n%60, n/60%24), Timezone: "Europe/Berlin"}
			})
		}
		if _, err := s.For(tenant).CreateJobs(b.Context(), list, jobs.ConflictError); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
}
