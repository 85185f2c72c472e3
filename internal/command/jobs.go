package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/manifest"
	"punctual/scheduler/jobspec"
)

// Jobs works on jobs by the API.
type Jobs struct {
	List    listJobs        `cmd:"" help:"List jobs, newest first: state, schedule, next slot and last outcome."`
	Show    showJob         `cmd:"" help:"Show a job as JSON or YAML. Secrets are shown as ***."`
	Preview previewSchedule `cmd:"" help:"Say in words when a schedule fires, with its next slots, and store nothing."`
	Apply   applyJobs       `cmd:"" help:"Create or replace jobs by name, from JSON or YAML. Unchanged jobs are left alone."`
	Pause   pauseJob        `cmd:"" help:"Pause a job."`
	Resume  resumeJob       `cmd:"" help:"Resume a job."`
	Run     runJob          `cmd:"" help:"Run a job now or later, in addition to its schedule. The run's id goes to stdout."`
	Dated   datedRuns       `cmd:"" help:"List, move or cancel the runs of a job that are pending: those of jobs run --delay, --at or --key."`
	Delete  deleteJob       `cmd:"" help:"Delete a job. Its history stays."`

	Runs     jobRuns     `cmd:"" help:"List the runs of a job, newest first, and who asked for manual ones."`
	Steps    runSteps    `cmd:"" help:"List the steps of a workflow's run: the progress of each, and what it waits for."`
	Rerun    rerunRun    `cmd:"" help:"Rerun an ended run; of a job with steps, from a step on. The new run's id goes to stdout."`
	Approve  approveRun  `cmd:"" help:"Approve a step that waits for approval."`
	Reject   rejectRun   `cmd:"" help:"Reject a step that waits for approval."`
	Changes  jobChanges  `cmd:"" help:"List who changed a job, its runs and its dead letters, newest first."`
	Versions jobVersions `cmd:"" help:"List the versions of a job, newest first."`
	Diff     diffJob     `cmd:"" help:"Show how two versions of a job differ."`
	Rollback rollBackJob `cmd:"" help:"Restore an earlier definition of a job. The job keeps its name, and stays paused or active."`
}

// oneJob holds the argument that names a job.
type oneJob struct {
	api
	Job string `arg:"" name:"name" help:"Name or id."`
}

type showJob struct {
	oneJob
	YAML bool `name:"yaml" help:"Show YAML."`
}

func (c *showJob) Run(ctx context.Context, api *client.Client) error {
	var job json.RawMessage
	_, err := api.Do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(c.Job), nil, &job)
	switch {
	case err != nil:
		return err
	case c.YAML:
		text, err := manifest.YAML(job)
		fmt.Print(text)
		return err
	}
	return printJSON(job)
}

type pauseJob struct {
	oneJob
	Until jobspec.Instant `placeholder:"INSTANT" help:"When it resumes by itself, such as 2026-12-01T09:00:00Z. Default: never."`
	Note  string          `placeholder:"TEXT" help:"Reason, for people."`
}

func (c *pauseJob) Run(ctx context.Context, api *client.Client) error {
	job, err := client.PauseJob.Do(ctx, api, httpapi.PauseInput{Until: c.Until, Note: c.Note}, c.Job)
	until := ""
	if job.PausedUntil != nil {
		until = " until " + instant(job.PausedUntil)
	}
	return done(err, "job %s is paused%s", job.Name, until)
}

type resumeJob struct {
	oneJob
	Note string `placeholder:"TEXT" help:"Reason, for people."`
}

func (c *resumeJob) Run(ctx context.Context, api *client.Client) error {
	job, err := client.ResumeJob.Do(ctx, api, httpapi.ResumeInput{Note: c.Note}, c.Job)
	return done(err, "job %s is %s%s", job.Name, job.State, swallowed(job))
}

// swallowed says which slots the pause swallowed that a request has ended, and how to make up for them.
func swallowed(job httpapi.Job) string {
	if job.SkippedWhilePaused == nil {
		return ""
	}
	again := httpapi.MakeUp(*job.SkippedWhilePaused)
	return fmt.Sprintf("\n%s; to make up for them: POST /v1/jobs/%s/backfill {\"from\":%q,\"to\":%q}",
		httpapi.SkippedWords(*job.SkippedWhilePaused), url.PathEscape(job.Name), again.From, again.To)
}

type deleteJob struct {
	oneJob
	Force bool `help:"Delete it even if runs of other jobs trigger it."`
}

func (c *deleteJob) Run(ctx context.Context, api *client.Client) error {
	force := url.Values{"force": {strconv.FormatBool(c.Force)}}
	_, err := client.DeleteJob.Do(ctx, api, force, c.Job)
	return done(err, "job %s is deleted", c.Job)
}

// read returns what is in a file; - is standard input.
func read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}
