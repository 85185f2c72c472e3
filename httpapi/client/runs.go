package client

import (
	"context"
	"net/url"

	"punctual/httpapi"
	"punctual/store/letters"
	"punctual/store/runs"
)

// Runs lists runs and recorded skips of all jobs.
func (c *Client) Runs(ctx context.Context, query url.Values) (httpapi.List[runs.Run], error) {
	return get[httpapi.List[runs.Run]](ctx, c, "/v1/runs", query)
}

// JobRuns lists the runs and recorded skips of one job.
func (c *Client) JobRuns(ctx context.Context, job string, query url.Values) (httpapi.List[runs.Run], error) {
	return get[httpapi.List[runs.Run]](ctx, c, at("/v1/jobs/%s/runs", job), query)
}

// Run returns a run with its attempts.
func (c *Client) Run(ctx context.Context, run string) (runs.Run, error) {
	return get[runs.Run](ctx, c, at("/v1/runs/%s", run), nil)
}

// CancelRun cancels a run.
func (c *Client) CancelRun(ctx context.Context, run string) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/cancel", run), nil)
}

// RerunRun starts another run of the slot of a run.
func (c *Client) RerunRun(ctx context.Context, run string, with httpapi.RerunInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/rerun", run), with)
}

// DeadLetters lists dead letters.
func (c *Client) DeadLetters(ctx context.Context, query url.Values) (httpapi.List[letters.DeadLetter], error) {
	return get[httpapi.List[letters.DeadLetter]](ctx, c, "/v1/dead-letters", query)
}

// DeadLetterGroups lists the open dead letters by job and reason.
func (c *Client) DeadLetterGroups(
	ctx context.Context, query url.Values,
) (httpapi.List[letters.DeadLetterGroup], error) {
	return get[httpapi.List[letters.DeadLetterGroup]](ctx, c, "/v1/dead-letters/groups", query)
}

// ReplayDeadLetter runs the slot of a dead letter again.
func (c *Client) ReplayDeadLetter(ctx context.Context, run string, note httpapi.NoteInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/dead-letters/%s/replay", run), note)
}

// ResolveDeadLetter closes a dead letter that needs no replay.
func (c *Client) ResolveDeadLetter(
	ctx context.Context, run string, note httpapi.NoteInput,
) (letters.DeadLetter, error) {
	return post[letters.DeadLetter](ctx, c, at("/v1/dead-letters/%s/resolve", run), note)
}

const (
	replays  = "/v1/dead-letters/replay"
	resolves = "/v1/dead-letters/resolve"
)

// ReplayDeadLetters starts an operation that replays the selected dead letters.
func (c *Client) ReplayDeadLetters(ctx context.Context, bulk httpapi.BulkInput) (letters.Operation, error) {
	return start(ctx, c, replays, bulk)
}

// ResolveDeadLetters starts an operation that resolves the selected dead letters.
func (c *Client) ResolveDeadLetters(ctx context.Context, bulk httpapi.BulkInput) (letters.Operation, error) {
	return start(ctx, c, resolves, bulk)
}

// CountReplays counts the dead letters that ReplayDeadLetters would replay.
func (c *Client) CountReplays(ctx context.Context, bulk httpapi.BulkInput) (httpapi.Matched, error) {
	return countOf(ctx, c, replays, bulk)
}

// CountResolves counts the dead letters that ResolveDeadLetters would resolve.
func (c *Client) CountResolves(ctx context.Context, bulk httpapi.BulkInput) (httpapi.Matched, error) {
	return countOf(ctx, c, resolves, bulk)
}

func start(ctx context.Context, c *Client, path string, bulk httpapi.BulkInput) (letters.Operation, error) {
	bulk.DryRun = false
	return post[letters.Operation](ctx, c, path, bulk)
}

func countOf(ctx context.Context, c *Client, path string, bulk httpapi.BulkInput) (httpapi.Matched, error) {
	bulk.DryRun = true
	return post[httpapi.Matched](ctx, c, path, bulk)
}

// Operations lists operations on many runs or jobs.
func (c *Client) Operations(ctx context.Context, query url.Values) (httpapi.List[letters.Operation], error) {
	return get[httpapi.List[letters.Operation]](ctx, c, "/v1/operations", query)
}

// Operation returns an operation with its progress.
func (c *Client) Operation(ctx context.Context, operation string) (letters.Operation, error) {
	return get[letters.Operation](ctx, c, at("/v1/operations/%s", operation), nil)
}

// CancelOperation stops an operation. What it has done stays done.
func (c *Client) CancelOperation(ctx context.Context, operation string) (letters.Operation, error) {
	return post[letters.Operation](ctx, c, at("/v1/operations/%s/cancel", operation), nil)
}

// WithRunToken returns a client that authenticates with the token of an attempt, as a target does.
func (c *Client) WithRunToken(token string) *Client { return c.WithHeader("Punctual-Run-Token", token) }

// HeartbeatRun says that the target still works on a run, and puts the deadline off.
func (c *Client) HeartbeatRun(
	ctx context.Context, run string, beat httpapi.HeartbeatInput,
) (httpapi.Heartbeat, error) {
	return post[httpapi.Heartbeat](ctx, c, at("/v1/runs/%s/heartbeat", run), beat)
}

// CompleteRun says that the target has done the work of a run.
func (c *Client) CompleteRun(ctx context.Context, run string, with httpapi.CompletionInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/complete", run), with)
}

// FailRun says that the target could not do the work of a run.
func (c *Client) FailRun(ctx context.Context, run string, failure httpapi.FailureInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/fail", run), failure)
}

// RunProgress returns the progress that the target reported last.
func (c *Client) RunProgress(ctx context.Context, run string) (httpapi.Progress, error) {
	return get[httpapi.Progress](ctx, c, at("/v1/runs/%s/progress", run), nil)
}
