package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"punctual/httpapi/client"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// newest holds the flags of lists of which the newest part is shown.
type newest struct {
	api
	Limit int  `default:"50" help:"List at most this many, up to 500."`
	JSON  bool `name:"json" help:"Print the API's answer in full, for programs."`
}

// Validate is called by the flag parser.
func (c newest) Validate() error {
	limit := within(c.Limit >= 1 && c.Limit <= mostListed, "--limit", c.Limit, "1 to %d", mostListed)
	return errors.Join(limit, c.api.Validate())
}

// newestOfJob holds the arguments of such a list of a job.
type newestOfJob struct {
	newest
	Job string `arg:"" name:"name" help:"Name or id."`
}

func (c *newest) query() url.Values { return url.Values{"limit": {strconv.Itoa(c.Limit)}} }

type jobChanges struct{ newestOfJob }

func (c *jobChanges) Run(ctx context.Context, api *client.Client) error {
	list, err := client.JobChanges.Do(ctx, api, c.query(), c.Job)
	return printFirst(c.newest, "newest", list, err, "WHEN\tACTION\tBY\tFIELDS", func(change audit.JobChange) []any {
		by := audit.Actor{Kind: change.ActorKind, Name: orEmpty(change.Actor), KeyName: orEmpty(change.ActorName)}
		return []any{instant(&change.At), change.Action, by.Words(), fields(change.Before, change.After)}
	})
}

// fields names the fields that a change has changed.
func fields(before, after json.RawMessage) string {
	changed := audit.Differences(before, after)
	return strings.Join(pg.Column(changed, func(d audit.Difference) string { return d.Field }), ", ")
}

type jobRuns struct {
	newestOfJob
	Status string `placeholder:"STATUS" help:"Only runs in this status, such as dead or skipped."`
}

func (c *jobRuns) Run(ctx context.Context, api *client.Client) error {
	query := c.query()
	ask(query, map[string]string{"status": c.Status})
	list, err := client.JobRuns.Do(ctx, api, query, c.Job)
	return printFirst(c.newest, "newest", list, err, "SLOT\tTRIGGER\tBY\tSTATUS\tWHY\tRUN", func(r runs.Run) []any {
		why := string(orEmpty(r.Reason))
		if r.Cause != nil {
			why = strings.TrimPrefix(why+": "+r.Cause.Text, ": ")
		}
		return []any{instant(&r.ScheduledFor), r.Trigger, orEmpty(r.TriggeredBy), r.Status, why, r.ID}
	})
}

type jobVersions struct{ newestOfJob }

func (c *jobVersions) Run(ctx context.Context, api *client.Client) error {
	list, err := client.Versions.Do(ctx, api, c.query(), c.Job)
	return printFirst(c.newest, "newest", list, err, "VERSION\tFROM\tSTATE\tBY\tCHANGED", func(v jobs.Version) []any {
		changed := strings.Join(v.Changed, ", ")
		if v.Restored != nil {
			changed += fmt.Sprintf(" (restored version %d)", *v.Restored)
		}
		return []any{v.Number, instant(&v.From), v.State, orEmpty(v.By), changed}
	})
}

type diffJob struct {
	oneJob
	From int32 `arg:"" optional:"" help:"Number of a version. Default: the one before the other."`
	To   int32 `arg:"" optional:"" help:"Number of the other version. Default: the present one."`
}

func (c *diffJob) Run(ctx context.Context, api *client.Client) error {
	to := c.To
	if to == 0 {
		job, err := client.Job.Do(ctx, api, nil, c.Job)
		if err != nil {
			return err
		}
		to = job.Version
	}
	from := c.From
	if from == 0 {
		if from = to - 1; from == 0 {
			return errors.New("the job has only one version")
		}
	}
	v, err := client.Version.Do(ctx, api, url.Values{"against": {fmt.Sprint(from)}}, c.Job, fmt.Sprint(to))
	if err != nil {
		return err
	}
	for _, d := range v.Differences {
		fmt.Printf("%s: %s -> %s\n", d.Field, d.Before, d.After)
	}
	return nil
}

type rollBackJob struct {
	oneJob
	Version int32 `arg:"" help:"Number of the version."`
}

func (c *rollBackJob) Run(ctx context.Context, api *client.Client) error {
	job, err := client.RestoreVersion.Do(ctx, api, nil, c.Job, fmt.Sprint(c.Version))
	return done(err, "job %s has the definition of version %d again, as version %d", job.Name, c.Version, job.Version)
}
