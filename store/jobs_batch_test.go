package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
)

func batch(definitions ...domain.Definition) []jobs.NewJob {
	jobs := make([]jobs.NewJob, len(definitions))
	for i, d := range definitions {
		jobs[i].Definition = d
	}
	return jobs
}

func TestCreateJobs(t *testing.T) {
	past := time.Now().Add(-time.Minute)
	t.Run("writes them in the order given", func(t *testing.T) {
		c := newCRUD(t)
		results, err := c.createMany(jobs.ConflictError,
			definition("c", forbid), definition("a", at(past)), definition("b", never))
		must(t, err)
		for i, name := range []string{"c", "a", "b"} {
			if results[i].Name != name || c.get(name).ID != results[i].ID {
				t.Errorf("%d is %+v", i, results[i])
			}
		}
		if !c.woken() || c.count(`SELECT count(*) FROM punctual.exclusive`) != 1 {
			t.Error("the tick loop was not told, or the gate is missing")
		}
	})
	t.Run("writes none when some cannot be, and says which", func(t *testing.T) {
		c := newCRUD(t)
		c.create("taken")
		for name, list := range map[string][]jobs.NewJob{
			"invalid": batch(definition("a"),
				definition("b", func(d *domain.Definition) { d.Queue = "nowhere" }), definition("a")),
			"taken": batch(definition("a"), definition("taken"), definition("taken")),
		} {
			_, err := c.For(c.tenant).CreateJobs(t.Context(), list, jobs.ConflictError)
			var bad *jobs.BatchError
			if !errors.As(err, &bad) ||
				!slices.Equal(slices.Sorted(maps.Keys(bad.Errors)), map[string][]int{"invalid": {1, 2}, "taken": {2}}[name]) {
				t.Errorf("%s: %v %v", name, err, bad)
			}
		}
		_, err := c.createMany(jobs.ConflictError, definition("a"), definition("taken"))
		var bad *jobs.BatchError
		if !errors.As(err, &bad) || !errors.Is(bad.Errors[1], jobs.ErrNameTaken) || len(bad.Errors) != 1 {
			t.Errorf("%v", err)
		}
		c.wantCount(1, "jobs", `SELECT count(*) FROM punctual.jobs`)
	})
	t.Run("takes the names that completed jobs still have", func(t *testing.T) {
		c := newCRUD(t)
		c.complete(c.create("b", at(past)).ID)
		results, err := c.createMany(jobs.ConflictError, definition("a"), definition("b"), definition("c"))
		must(t, err)
		for i, name := range []string{"a", "b", "c"} {
			if got := c.get(name); got.ID != results[i].ID || got.State != domain.JobActive {
				t.Errorf("%s is %+v, not %+v", name, got, results[i])
			}
		}
		for written, want := range map[string]int{"jobs": 4, "job_versions": 4, "schedules": 3, "audit_log": 4} { // b twice
			if n := c.count(`SELECT count(*) FROM punctual.` + written); n != want {
				t.Errorf("%d rows in %s, want %d", n, written, want)
			}
		}
	})
	t.Run("says that names are taken before it says that a limit is reached", func(t *testing.T) {
		c := newCRUD(t)
		c.create("taken")
		c.limit("max_jobs", 2)
		_, err := c.createMany(jobs.ConflictError, definition("a"), definition("taken"))
		var bad *jobs.BatchError
		if !errors.As(err, &bad) || !slices.Equal(slices.Sorted(maps.Keys(bad.Errors)), []int{1}) {
			t.Errorf("%v", err)
		}
	})
	t.Run("skips what is there", func(t *testing.T) {
		c := newCRUD(t)
		old := c.create("a")
		results, err := c.createMany(jobs.ConflictSkip, definition("a", described("x")), definition("b"))
		if err != nil || results[0].ID != old.ID || c.get("a").Version != 1 || c.get("b").ID != results[1].ID {
			t.Errorf("%+v, %v", results, err)
		}
	})
	t.Run("sent again, does not fire an instant twice", func(t *testing.T) {
		for _, on := range []jobs.OnConflict{jobs.ConflictSkip, jobs.ConflictReplace} {
			t.Run(string(on), func(t *testing.T) {
				c := newCRUD(t)
				old := c.create("a", at(past))
				c.complete(old.ID)
				results, err := c.createMany(on, definition("a", at(past)))
				if err != nil || results[0].ID != old.ID || c.get("a").State != domain.JobCompleted {
					t.Errorf("%+v, %v", results, err)
				}
			})
		}
	})
	t.Run("replaces what is there, where it differs", func(t *testing.T) {
		c := newCRUD(t)
		same, other, due := c.create("same"), c.create("other"), c.create("due")
		c.slotAgo(due.ID, time.Second)
		results, err := c.createMany(jobs.ConflictReplace,
			definition("new"), definition("other", every(2*time.Hour)), definition("same"),
			definition("due", every(3*time.Hour)))
		if err != nil || results[1].ID != other.ID || results[2].ID != same.ID {
			t.Fatalf("%+v, %v", results, err)
		}
		if c.get("same").Version != 1 || c.get("other").Version != 2 ||
			c.get("other").Definition.Schedule.Every.Value() != 2*time.Hour {
			t.Error("wrong versions")
		}
		c.wantHistory(due.ID, "schedule pending")
	})
	t.Run("concurrent batches with the same names write each once", func(t *testing.T) {
		c := newCRUD(t)
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				list := make([]jobs.NewJob, 50)
				for i := range list {
					list[i].Definition = definition(fmt.Sprintf("j%d", (i*7+n*13)%50))
				}
				results, err := c.For(c.tenant).CreateJobs(t.Context(), list, jobs.ConflictSkip)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range results {
					if c.get(r.Name).ID != r.ID {
						t.Errorf("%+v is not the job of that name", r)
					}
				}
			})
		}
		wg.Wait()
		c.wantCount(50, "jobs", `SELECT count(*) FROM punctual.jobs`)
	})
}

func BenchmarkCreateJobs(b *testing.B) {
	s := openBench(b)
	tenant, err := s.Tenants.TenantID(b.Context(), "default")
	must(b, err)
	n := 0
	for b.Loop() {
		list := make([]jobs.NewJob, 1000)
		for i := range list {
			n++
			list[i].Definition = definition(fmt.Sprintf("job-%d", n), func(d *domain.Definition) {
				d.Schedule = domain.Schedule{Cron: fmt.Sprintf("%d %d * * *", n%60, n/60%24), Timezone: "Europe/Berlin"}
			})
		}
		if _, err := s.For(tenant).CreateJobs(b.Context(), list, jobs.ConflictError); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
}
