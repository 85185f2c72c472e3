package jobs_test

import (
	"errors"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A cron expression whose times are in doubt is refused by everything that writes a definition, and by nothing else.
func TestACronInDoubtIsNotWritten(t *testing.T) {
	c := NewReplica(t)
	ctx := t.Context()
	cron := func(text string) Option {
		return func(d *jobspec.Definition) { d.Schedule = jobspec.Schedule{Cron: text} }
	}
	job := c.Create("job", cron("0 3 * * *"))
	c.Edit("job", Described("edited"))
	doubt := &jobspec.Refusal{Code: jobspec.CodeCronMismatch, Around: true, Reason: "03:00 or 04:00"}
	asked := 0
	c.Jobs.CrossCheckBy(func(*jobspec.Timetable) error {
		asked++
		return doubt
	})

	added := jobs.NewJob{Definition: Definition("new", cron("0 4 * * *"))}
	old := jobs.NewJob{Definition: Definition("job", cron("0 4 * * *"))}
	for about, write := range map[string]func() error{
		"create": func() error {
			_, err := c.For(c.Tenant).CreateJob(ctx, added)
			return err
		},
		"create many": func() error {
			_, err := c.For(c.Tenant).CreateJobs(ctx, []jobs.NewJob{added}, jobs.ConflictError)
			return err
		},
		"replace many": func() error {
			_, err := c.For(c.Tenant).CreateJobs(ctx, []jobs.NewJob{old}, jobs.ConflictReplace)
			return err
		},
		"put": func() error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, "new", added, nil, false)
			return err
		},
		"edit": func() error {
			_, err := c.Jobs.EditJob(ctx, c.Tenant, "job", nil, func(jobs.Record) (jobs.NewJob, error) { return old, nil })
			return err
		},
		"restore": func() error {
			_, err := c.Jobs.RestoreVersion(ctx, c.Tenant, "job", 1, nil, func(jobspec.Definition) error { return nil })
			return err
		},
	} {
		before := asked
		refused, is := errors.AsType[*jobspec.Refusal](write())
		if !is || refused != doubt || asked == before {
			t.Errorf("%s: refused with %v", about, refused)
		}
	}
	c.WantCount(1, "jobs", `SELECT count(*) FROM punctual.jobs`)
	c.WantCount(2, "versions", `SELECT count(*) FROM punctual.job_versions`)

	asked = 0
	c.Pause("job")
	if resumed, err := c.Jobs.ResumeJob(ctx, c.Tenant, "job", ""); err != nil || resumed.NextRunAt == nil {
		t.Errorf("resumed, the job is %+v, %v", resumed, err)
	}
	c.SetNext(job.ID, c.Clock().Truncate(time.Second))
	c.One(c.Claim(1, false))
	if asked > 0 {
		t.Errorf("of what is stored, %d definitions were checked", asked)
	}
}
