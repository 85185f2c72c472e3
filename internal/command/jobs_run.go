package command

import (
	"context"
	"fmt"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

type runJob struct {
	oneJob
	Body string `type:"path" placeholder:"FILE" help:"Body of this run, in place of the job's; - reads standard input. JSON is sent as JSON, anything else as text."`

	At           jobspec.Instant  `placeholder:"INSTANT" help:"When it is due, such as 2026-12-01T16:00:00Z. Default: now."`
	Delay        jobspec.Duration `aliases:"in" placeholder:"DURATION" help:"How long from now it is due, such as 1h. --in is the same."`
	Key          string           `placeholder:"KEY" help:"Your name for the run while it is pending. A job has one pending run of a name. Default: the server chooses one."`
	OnConflict   jobs.KeyConflict `placeholder:"WORD" help:"Treatment of a pending run with the key: keep, replace or error. Default: keep."`
	NotAfter     jobspec.Duration `placeholder:"DURATION" help:"How long replacements may postpone it in all, since the key was first written. Default: for ever."`
	Sequence     *int64           `placeholder:"N" help:"A replacement needs a higher one than the pending run, or one claimed or cancelled in the last day. Default: it replaces any."`
	ExpiresAfter jobspec.Duration `placeholder:"DURATION" help:"In place of the job's expires_after."`
}

func (c *runJob) Run(ctx context.Context, api *client.Client) error {
	with := httpapi.TriggerInput{DatedInput: httpapi.DatedInput{
		At: c.At, Delay: c.Delay, Key: c.Key, OnConflict: c.OnConflict, NotAfter: c.NotAfter, Sequence: c.Sequence,
		ExpiresAfter: c.ExpiresAfter,
	}}
	if c.Body != "" {
		text, err := read(c.Body)
		if err != nil {
			return fmt.Errorf("--body: %w", err)
		}
		with.Body = client.BodyOf(text)
	}
	if with.DatedInput != (httpapi.DatedInput{}) {
		dated, err := client.TriggerJobAt.Do(ctx, api, with, c.Job)
		return tellDated(dated, err, "was pending and is replaced")
	}
	run, err := client.TriggerJob.Do(ctx, api, with, c.Job)
	return result(run.ID, err)
}

// tellDated prints the id that a dated run will have, and says for people what became of it. replaced says it of one
// that was pending.
func tellDated(dated jobs.Dated, err error, replaced string) error {
	became := "was pending and stays as it is"
	switch {
	case dated.Created:
		became = "is pending"
	case dated.Replaced:
		became = replaced
	case dated.Outdated:
		became = "was claimed or cancelled with a sequence as high, so nothing was written"
	}
	return done(result(dated.Run, err), "the run with the key %s %s; it is due at %s", dated.Key, became,
		instant(&dated.DueAt))
}

type datedRuns struct {
	List   listDated   `cmd:"" default:"withargs" help:"List the pending runs of a job, the soonest first."`
	Move   moveDated   `cmd:"" help:"Move a pending run of a job to another instant. All else of it stays."`
	Cancel cancelDated `cmd:"" help:"Cancel a pending run of a job."`
}

type listDated struct{ newestOfJob }

func (c *listDated) Run(ctx context.Context, api *client.Client) error {
	list, err := client.DatedRuns.Do(ctx, api, c.query(), c.Job)
	return printFirst(c.newest, "soonest", list, err, "DUE\tKEY\tSEQUENCE\tBY", func(d jobs.DatedRun) []any {
		return []any{instant(&d.DueAt), d.Key, orDash(d.Sequence), d.TriggeredBy}
	})
}

// oneDated holds the arguments that name a pending run.
type oneDated struct {
	oneJob
	Key string `arg:"" name:"key" help:"Key of the run."`
}

type moveDated struct {
	oneDated
	At       jobspec.Instant  `placeholder:"INSTANT" help:"When it is due, such as 2026-12-01T16:00:00Z."`
	Delay    jobspec.Duration `aliases:"in" placeholder:"DURATION" help:"How long from now it is due, such as 1h. --in is the same."`
	Sequence *int64           `placeholder:"N" help:"The run is moved only if this is higher than its own. Default: it is moved."`
}

func (c *moveDated) Run(ctx context.Context, api *client.Client) error {
	to := httpapi.MoveInput{At: c.At, Delay: c.Delay, Sequence: c.Sequence}
	dated, err := client.MoveDated.Do(ctx, api, to, c.Job, c.Key)
	return tellDated(dated, err, "is moved")
}

type cancelDated struct{ oneDated }

func (c *cancelDated) Run(ctx context.Context, api *client.Client) error {
	_, err := client.CancelDated.Do(ctx, api, nil, c.Job, c.Key)
	return done(err, "the run with the key %s is cancelled", c.Key)
}
