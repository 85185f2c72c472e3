package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/runs"
)

// Then makes the end of a job's runs trigger others, given as "job" or "job when".
func Then(others ...string) Option {
	return func(d *jobspec.Definition) {
		d.Then = nil
		for _, other := range others {
			job, when, _ := strings.Cut(other, " ")
			d.Then = append(d.Then, jobspec.Link{Job: job, When: jobspec.LinkWhen(when)})
		}
	}
}

// caused returns the jobs that the end of a run has triggered, each with the status of its run and the reason of that.
func (c Fixture) caused(by uuid.UUID) string {
	c.T.Helper()
	return c.Text(`
		SELECT coalesce(string_agg(concat_ws(' ', coalesce(j.name, 'gone'), r.status, r.reason), ', ' ORDER BY j.name), '')
		FROM punctual.runs r LEFT JOIN punctual.jobs j ON j.id = r.job_id
		WHERE r.caused_by = $1 AND r.trigger = 'chain'`, by)
}

// WantCaused compares the runs that a run has triggered.
func (c Fixture) WantCaused(by uuid.UUID, want string) {
	c.T.Helper()
	if got := c.caused(by); got != want {
		c.T.Errorf("run %s (%s) has triggered %q, want %q", by, c.Run(by).Status, got, want)
	}
}

// Pend writes dated runs of a job, spread over some time from an instant.
func (c Replica) Pend(job string, n int, from, span time.Duration) {
	c.Exec(`
		INSERT INTO punctual.dated (run_id, job_id, due_at, tenant, lane, key, body, triggered_by)
		SELECT punctual.run_id_at(d.at), j.id, d.at, j.tenant, $5, md5(d.at::text), '{"order": 42}', 'key shop'
		FROM punctual.jobs j, generate_series(1, $2) n,
		     LATERAL (SELECT now() + $3::interval + $4::interval * (n::float8 / $2::integer) AS at) d
		WHERE j.name = $1`, job, n, from, span, c.Queue*4+1)
}

// Date writes a dated run of a job.
func (c Fixture) Date(job string, r jobs.DateRequest) jobs.Dated {
	c.T.Helper()
	out, err := c.For(c.Tenant).TriggerAt(c.T.Context(), job, r)
	Must(c.T, err)
	return out
}

// FitDated lets the chore do all of its work.
func (c Fixture) FitDated() {
	c.T.Helper()
	for left := true; left; {
		var err error
		_, left, err = c.Jobs.FitDated(c.T.Context())
		Must(c.T, err)
	}
	c.WantCount(0, "work on dated runs", `SELECT count(*) FROM punctual.dated_work`)
}

// Batch makes new jobs of definitions.
func Batch(definitions ...jobspec.Definition) []jobs.NewJob {
	jobs := make([]jobs.NewJob, len(definitions))
	for i, d := range definitions {
		jobs[i].Definition = d
	}
	return jobs
}

// Trigger triggers a job.
func (c Fixture) Trigger(ref string) runs.Run {
	c.T.Helper()
	run, err := c.TryTrigger(ref)
	Must(c.T, err)
	return run
}

// TryTrigger is Trigger with its error.
func (c Fixture) TryTrigger(ref string) (runs.Run, error) {
	return c.For(c.Tenant).TriggerJob(c.T.Context(), ref, jobs.TriggerRequest{})
}

// Claimed writes what a claim writes to a waiting run.
func (c Fixture) Claimed(run runs.Run) {
	c.T.Helper()
	c.Exec(`DELETE FROM punctual.ready WHERE run_id = $1`, run.ID)
	c.Exec(`UPDATE punctual.runs
		SET status = 'running', attempt = 1, fence = nextval('punctual.fences'), claimed_at = now(), started_at = now()
		WHERE id = $1`, run.ID)
}

// DeleteJob deletes a job.
func (c Fixture) DeleteJob(ref string) {
	c.T.Helper()
	Must(c.T, c.Jobs.DeleteJob(c.T.Context(), c.Tenant, ref, nil, false))
}

// Writes are all kinds of writes, and claims.
func (c Fixture) Writes() map[string]func(jobspec.Definition) error {
	c.T.Helper()
	ctx, yes := c.T.Context(), true
	queues, err := c.Replicas.EnsureQueues(ctx, []string{"default"})
	Must(c.T, err)
	return map[string]func(d jobspec.Definition) error{
		"put": func(d jobspec.Definition) error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, d.Name, jobs.NewJob{Definition: d}, nil, false)
			return err
		},
		"put paused": func(d jobspec.Definition) error {
			_, _, err := c.Jobs.PutJob(ctx, c.Tenant, d.Name, jobs.NewJob{Definition: d, Paused: &yes}, nil, false)
			return err
		},
		"delete": func(d jobspec.Definition) error { return c.Jobs.DeleteJob(ctx, c.Tenant, d.Name, nil, false) },
		"trigger": func(d jobspec.Definition) error {
			_, err := c.TryTrigger(d.Name)
			return err
		},
		"pause": func(d jobspec.Definition) error {
			_, err := c.Jobs.PauseJob(ctx, c.Tenant, d.Name, "", nil)
			return err
		},
		"resume": func(d jobspec.Definition) error { _, err := c.Jobs.ResumeJob(ctx, c.Tenant, d.Name, ""); return err },
		"batch": func(jobspec.Definition) error {
			_, err := c.CreateMany(jobs.ConflictReplace,
				Definition("j2", Every(time.Second)), Definition("j0", Forbid), Definition("j1"))
			return err
		},
		"change all": func(d jobspec.Definition) error {
			actions := []jobs.Action{jobs.PauseMany, jobs.ResumeMany, jobs.DeleteMany}
			_, err := c.For(c.Tenant).StartJobs(ctx, letters.JobsRequest{Change: jobs.Change{
				Action: actions[rand.IntN(3)], Filter: jobs.Filter{NamePrefix: d.Name[:1+rand.IntN(2)]},
			}})
			return err
		},
		"operate": func(jobspec.Definition) error { _, _, err := c.Letters.Operate(ctx); return err },
		"claim due": func(jobspec.Definition) error {
			_, err := c.Claims.ClaimDue(ctx,
				scheduler.Claim{Replica: uuid.New(), Quotas: []admit.Quota{{Queue: queues["default"], Slots: 10}}})
			return err
		},
		"forget": func(jobspec.Definition) error {
			c.Exec(`UPDATE punctual.completions SET look_at = now() - interval '1 s'`)
			_, _, err := c.Jobs.ForgetCompletedJobs(ctx)
			return err
		},
		"claim ready": func(jobspec.Definition) error {
			_, err := c.Claims.ClaimReady(ctx,
				scheduler.Claim{Replica: uuid.New(), Quotas: []admit.Quota{{Queue: queues["default"], Slots: 10}}})
			return err
		},
	}
}

// WantOneWinner fails the test unless one of several attempts succeeded and the others were refused.
func WantOneWinner(t *testing.T, errs []error, refused error) {
	t.Helper()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			WantError(t, err, refused)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// JobNames lists the names of the jobs that a filter selects.
func (c Fixture) JobNames(f jobs.Filter) []string {
	c.T.Helper()
	jobs, _, err := c.Jobs.ListJobs(c.T.Context(), c.Tenant, f)
	Must(c.T, err)
	var names []string
	for _, j := range jobs {
		names = append(names, j.Definition.Name)
	}
	slices.Sort(names)
	return names
}

// ResumeDue ends the pauses that are over, and says how many.
func (c Fixture) ResumeDue() int {
	c.T.Helper()
	n, _, err := c.Jobs.ResumeDue(c.T.Context())
	Must(c.T, err)
	return n
}

// SaysOf is the outcome and the sentence that explain gives about an instant of a job.
func (c Fixture) SaysOf(ref string, at time.Time) string {
	c.T.Helper()
	e := c.Explained(ref, at)
	return fmt.Sprintf("%s: %s", e.Outcome, e.Text)
}

// Pause pauses a job.
func (c Fixture) Pause(ref string) jobs.Record {
	c.T.Helper()
	return c.PauseWith(ref, "", nil)
}

// PauseWith pauses a job with a note, until an instant if there is one.
func (c Fixture) PauseWith(ref, note string, until *time.Time) jobs.Record {
	c.T.Helper()
	job, err := c.Jobs.PauseJob(c.T.Context(), c.Tenant, ref, note, until)
	c.Must(err)
	return job
}

// Resumed resumes a job.
func (c Fixture) Resumed(ref string) jobs.Record {
	c.T.Helper()
	job, err := c.Jobs.ResumeJob(c.T.Context(), c.Tenant, ref, "")
	c.Must(err)
	return job
}
