package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"punctual/httpapi"
	"punctual/store/audit"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/overview"
	"punctual/store/runs"
)

// Jobs lists jobs. The query holds the filters and the page, such as state, label, recent and cursor.
func (c *Client) Jobs(ctx context.Context, query url.Values) (httpapi.List[httpapi.ListedJob], error) {
	return get[httpapi.List[httpapi.ListedJob]](ctx, c, "/v1/jobs", query)
}

// Job returns the job with an id or a name.
func (c *Client) Job(ctx context.Context, job string) (httpapi.Job, error) {
	return get[httpapi.Job](ctx, c, at("/v1/jobs/%s", job), nil)
}

// CreateJob creates a job.
func (c *Client) CreateJob(ctx context.Context, job httpapi.JobInput) (httpapi.Job, error) {
	return post[httpapi.Job](ctx, c, "/v1/jobs", job)
}

// CreateJobs writes up to 1,000 jobs at once.
func (c *Client) CreateJobs(ctx context.Context, batch httpapi.BatchInput) (httpapi.BatchAnswer, error) {
	return post[httpapi.BatchAnswer](ctx, c, "/v1/jobs/batch", batch)
}

// PatchJob changes the fields of a job that the patch names (JSON Merge Patch).
func (c *Client) PatchJob(ctx context.Context, job string, patch any) (httpapi.Job, error) {
	return merge[httpapi.Job](ctx, c, at("/v1/jobs/%s", job), patch)
}

// DeleteJob deletes a job. Its history stays.
func (c *Client) DeleteJob(ctx context.Context, job string, force bool) error {
	path := at("/v1/jobs/%s", job)
	if force {
		path += "?force=true"
	}
	return c.remove(ctx, path)
}

// PauseJob pauses a job.
func (c *Client) PauseJob(ctx context.Context, job string, pause httpapi.PauseInput) (httpapi.Job, error) {
	return post[httpapi.Job](ctx, c, at("/v1/jobs/%s/pause", job), pause)
}

// ResumeJob ends the pause of a job.
func (c *Client) ResumeJob(ctx context.Context, job string, resume httpapi.ResumeInput) (httpapi.Job, error) {
	return post[httpapi.Job](ctx, c, at("/v1/jobs/%s/resume", job), resume)
}

// PauseJobs starts an operation that pauses the selected jobs.
func (c *Client) PauseJobs(ctx context.Context, pause httpapi.PauseJobsInput) (letters.Operation, error) {
	return post[letters.Operation](ctx, c, "/v1/jobs/pause", pause)
}

// ResumeJobs starts an operation that resumes the selected jobs.
func (c *Client) ResumeJobs(ctx context.Context, resume httpapi.JobsInput) (letters.Operation, error) {
	return post[letters.Operation](ctx, c, "/v1/jobs/resume", resume)
}

// DeleteJobs starts an operation that deletes the selected jobs.
func (c *Client) DeleteJobs(ctx context.Context, selected httpapi.JobsInput) (letters.Operation, error) {
	return post[letters.Operation](ctx, c, "/v1/jobs/delete", selected)
}

// CountJobs counts the jobs that PauseJobs, ResumeJobs or DeleteJobs would work on.
func (c *Client) CountJobs(
	ctx context.Context, action jobs.Action, filter httpapi.JobSelection,
) (httpapi.Matched, error) {
	in := httpapi.JobsInput{Filter: &filter, DryRun: true}
	return post[httpapi.Matched](ctx, c, at("/v1/jobs/%s", string(action)), in)
}

// TriggerJob starts a run of a job by hand.
func (c *Client) TriggerJob(ctx context.Context, job string, with httpapi.TriggerInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/jobs/%s/trigger", job), with)
}

// TriggerJobAt writes a dated run of a job. At least one field of its DatedInput is set.
func (c *Client) TriggerJobAt(ctx context.Context, job string, with httpapi.TriggerInput) (httpapi.Dated, error) {
	return post[httpapi.Dated](ctx, c, at("/v1/jobs/%s/trigger", job), with)
}

// TriggerBatch writes up to 1,000 dated runs of a job at once.
func (c *Client) TriggerBatch(
	ctx context.Context, job string, batch httpapi.TriggerBatchInput,
) (httpapi.TriggerBatchAnswer, error) {
	return post[httpapi.TriggerBatchAnswer](ctx, c, at("/v1/jobs/%s/trigger/batch", job), batch)
}

// DatedRuns lists the pending dated runs of a job, the soonest first.
func (c *Client) DatedRuns(ctx context.Context, job string, query url.Values) (httpapi.List[httpapi.DatedRun], error) {
	return get[httpapi.List[httpapi.DatedRun]](ctx, c, at("/v1/jobs/%s/dated", job), query)
}

// DatedRun returns the pending dated run of a job with a key.
func (c *Client) DatedRun(ctx context.Context, job, key string) (httpapi.DatedRun, error) {
	return get[httpapi.DatedRun](ctx, c, datedPath(job, key), nil)
}

// MoveDated moves the pending dated run of a job with a key to another instant.
func (c *Client) MoveDated(ctx context.Context, job, key string, move httpapi.MoveInput) (httpapi.Dated, error) {
	return merge[httpapi.Dated](ctx, c, datedPath(job, key), move)
}

// CancelDated cancels the pending dated run of a job with a key.
func (c *Client) CancelDated(ctx context.Context, job, key string) error {
	return c.remove(ctx, datedPath(job, key))
}

func datedPath(job, key string) string { return at("/v1/jobs/%s/dated/", job) + url.PathEscape(key) }

// BodyOf returns a body in the form of the API: JSON is sent as JSON, anything else as text.
func BodyOf(text []byte) json.RawMessage {
	if json.Valid(text) {
		return text
	}
	quoted, _ := json.Marshal(string(text)) // a string is always JSON
	return quoted
}

// ExplainJob says what happened to a job at an instant. Without an offset, the instant is in the time zone of the job's
// schedule.
func (c *Client) ExplainJob(ctx context.Context, job, instant string) (history.Explanation, error) {
	return get[history.Explanation](ctx, c, at("/v1/jobs/%s/explain", job), url.Values{"at": {instant}})
}

// Upcoming returns the next slots of a job.
func (c *Client) Upcoming(ctx context.Context, job string, query url.Values) (httpapi.Upcoming, error) {
	return get[httpapi.Upcoming](ctx, c, at("/v1/jobs/%s/upcoming", job), query)
}

// PreviewSchedule returns the slots of a schedule that belongs to no job yet.
func (c *Client) PreviewSchedule(ctx context.Context, preview httpapi.PreviewInput) (httpapi.Preview, error) {
	return post[httpapi.Preview](ctx, c, "/v1/schedules/preview", preview)
}

// Forecast says how much is to come, step by step.
func (c *Client) Forecast(ctx context.Context, query url.Values) (httpapi.Forecast, error) {
	return get[httpapi.Forecast](ctx, c, "/v1/forecast", query)
}

// JobChanges lists the changes of a job, the newest first.
func (c *Client) JobChanges(ctx context.Context, job string, query url.Values) (httpapi.List[audit.JobChange], error) {
	return get[httpapi.List[audit.JobChange]](ctx, c, at("/v1/jobs/%s/changes", job), query)
}

// Versions lists the versions of a job, the newest first.
func (c *Client) Versions(ctx context.Context, job string, query url.Values) (httpapi.List[jobs.Version], error) {
	return get[httpapi.List[jobs.Version]](ctx, c, at("/v1/jobs/%s/versions", job), query)
}

// Version returns a version of a job, compared with another one unless against is 0.
func (c *Client) Version(ctx context.Context, job string, version, against int32) (jobs.WholeVersion, error) {
	query := url.Values{}
	if against != 0 {
		query.Set("against", fmt.Sprint(against))
	}
	return get[jobs.WholeVersion](ctx, c, versionPath(job, version), query)
}

// RestoreVersion writes the definition of a version of a job as its next version.
func (c *Client) RestoreVersion(ctx context.Context, job string, version int32) (httpapi.Job, error) {
	return post[httpapi.Job](ctx, c, versionPath(job, version)+"/restore", nil)
}

func versionPath(job string, version int32) string {
	return fmt.Sprintf("%s/%d", at("/v1/jobs/%s/versions", job), version)
}

// AuditLog lists changes, the newest first.
func (c *Client) AuditLog(ctx context.Context, query url.Values) (httpapi.List[audit.Entry], error) {
	return get[httpapi.List[audit.Entry]](ctx, c, "/v1/audit-log", query)
}

// Instant returns an instant in the form of queries.
func Instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Overview returns what needs attention now, and how the last 24 hours went.
func (c *Client) Overview(ctx context.Context) (httpapi.Overview, error) {
	return get[httpapi.Overview](ctx, c, "/v1/overview", nil)
}

// Usage lists what the runs of each job used on each day, the newest day first.
func (c *Client) Usage(ctx context.Context, query url.Values) (httpapi.List[overview.Usage], error) {
	return get[httpapi.List[overview.Usage]](ctx, c, "/v1/usage", query)
}

// JobStats returns how the runs of a job went lately.
func (c *Client) JobStats(ctx context.Context, job string) (runs.JobStats, error) {
	return get[runs.JobStats](ctx, c, at("/v1/jobs/%s/stats", job), nil)
}
