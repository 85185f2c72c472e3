package client

import (
	"context"
	"net/url"

	"punctual/httpapi"
	"punctual/scheduler/domain"
	"punctual/store/letters"
	"punctual/store/runs"
)

// Runs lists runs and recorded skips of all jobs.
func (c *Client) Runs(ctx context.Context, query url.Values) (httpapi.List[runs.Run], error) {
	return get[httpapi.List[runs.Run]](ctx, c, "/v1/runs", query)
}

// RunChanges lists the runs that have ended since a cursor.
func (c *Client) RunChanges(ctx context.Context, query url.Values) (httpapi.RunChanges[runs.Run], error) {
	return get[httpapi.RunChanges[runs.Run]](ctx, c, "/v1/runs/changes", query)
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

// PlanRerun returns what a rerun would do with the steps of a workflow, and makes none.
func (c *Client) PlanRerun(ctx context.Context, run string, with httpapi.RerunInput) (domain.RerunPlan, error) {
	with.DryRun = true
	return post[domain.RerunPlan](ctx, c, at("/v1/runs/%s/rerun", run), with)
}

// ApproveRun approves a step that waits for approval, by its run or that of its workflow.
func (c *Client) ApproveRun(ctx context.Context, run string, note httpapi.NoteInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/approve", run), note)
}

// RejectRun rejects a step that waits for approval, by its run or that of its workflow.
func (c *Client) RejectRun(ctx context.Context, run string, note httpapi.NoteInput) (runs.Run, error) {
	return post[runs.Run](ctx, c, at("/v1/runs/%s/reject", run), note)
}

// Approval returns the step of the link in a notice, whose token stands in for a key.
func (c *Client) Approval(ctx context.Context, run, token string) (runs.LinkedStep, error) {
	return get[runs.LinkedStep](ctx, c, at("/v1/approvals/%s", run), url.Values{"token": {token}})
}

// DecideApproval approves or rejects the step of a link.
func (c *Client) DecideApproval(
	ctx context.Context, run, token string, with httpapi.DecisionInput,
) (runs.LinkedStep, error) {
	return post[runs.LinkedStep](ctx, c, at("/v1/approvals/%s", run)+"?"+url.Values{"token": {token}}.Encode(), with)
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
	return post[letters.Operation](ctx, c, replays, bulk)
}

// ResolveDeadLetters starts an operation that resolves the selected dead letters.
func (c *Client) ResolveDeadLetters(ctx context.Context, bulk httpapi.BulkInput) (letters.Operation, error) {
	return post[letters.Operation](ctx, c, resolves, bulk)
}

// CountReplays counts the dead letters that ReplayDeadLetters would replay.
func (c *Client) CountReplays(ctx context.Context, bulk httpapi.BulkInput) (httpapi.Matched, error) {
	bulk.DryRun = true
	return post[httpapi.Matched](ctx, c, replays, bulk)
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
