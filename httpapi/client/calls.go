package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"punctual/httpapi"
	"punctual/scheduler/domain"
	"punctual/store/aside"
	"punctual/store/audit"
	"punctual/store/events"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/notices"
	"punctual/store/runs"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// Call is an operation of the API: its method and its path. It takes an In, which is its query or else its body, and
// answers an Out.
type Call[In, Out any] string

// Query are the parameters of a call without a body, such as the filters and the cursor of a list.
type Query = url.Values

// Do calls the operation. The names and ids take the places of the {parts} of its path.
func (call Call[In, Out]) Do(ctx context.Context, api *Client, in In, names ...string) (out Out, err error) {
	method, path, _ := strings.Cut(string(call), " ")
	for _, name := range names {
		before, part, _ := strings.Cut(path, "{")
		_, after, _ := strings.Cut(part, "}")
		path = before + url.PathEscape(name) + after
	}
	body := any(in)
	if query, is := body.(Query); is {
		body = nil
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
	}
	if method == http.MethodPatch {
		api = api.WithHeader("Content-Type", "application/merge-patch+json")
	}
	_, err = api.Do(ctx, method, path, body, &out)
	return out, err
}

type (
	list[T any] = httpapi.List[T]
	operation   = letters.Operation
)

// The calls that are about jobs.
const (
	// Jobs lists jobs.
	Jobs = Call[Query, list[httpapi.ListedJob]]("GET /v1/jobs")
	// Job returns the job with an id or a name.
	Job = Call[Query, httpapi.Job]("GET /v1/jobs/{job}")
	// CreateJob creates a job.
	CreateJob = Call[httpapi.JobInput, httpapi.Job]("POST /v1/jobs")
	// PatchJob changes the fields of a job that the patch names (JSON Merge Patch).
	PatchJob = Call[any, httpapi.Job]("PATCH /v1/jobs/{job}")
	// DeleteJob deletes a job. Its history stays.
	DeleteJob = Call[Query, any]("DELETE /v1/jobs/{job}")
	// PauseJob pauses a job.
	PauseJob = Call[httpapi.PauseInput, httpapi.Job]("POST /v1/jobs/{job}/pause")
	// ResumeJob ends the pause of a job.
	ResumeJob = Call[httpapi.ResumeInput, httpapi.Job]("POST /v1/jobs/{job}/resume")
	// ChangeJobs starts an operation that pauses, resumes or deletes the selected jobs: see [jobs.Action].
	ChangeJobs = Call[httpapi.PauseJobsInput, operation]("POST /v1/jobs/{action}")
	// CountJobs counts the jobs that ChangeJobs would work on. It needs DryRun.
	CountJobs = Call[httpapi.JobsInput, httpapi.Matched]("POST /v1/jobs/{action}")
	// TriggerJob starts a run of a job by hand.
	TriggerJob = Call[httpapi.TriggerInput, runs.Run]("POST /v1/jobs/{job}/trigger")
	// TriggerJobAt writes a dated run of a job. At least one field of its DatedInput is set.
	TriggerJobAt = Call[httpapi.TriggerInput, jobs.Dated]("POST /v1/jobs/{job}/trigger")
	// DatedRuns lists the pending dated runs of a job, the soonest first.
	DatedRuns = Call[Query, list[jobs.DatedRun]]("GET /v1/jobs/{job}/dated")
	// MoveDated moves the pending dated run of a job with a key to another instant.
	MoveDated = Call[httpapi.MoveInput, jobs.Dated]("PATCH /v1/jobs/{job}/dated/{key}")
	// CancelDated cancels the pending dated run of a job with a key.
	CancelDated = Call[Query, any]("DELETE /v1/jobs/{job}/dated/{key}")
	// Backfill starts an operation that makes runs of past slots of a job.
	Backfill = Call[httpapi.BackfillInput, operation]("POST /v1/jobs/{job}/backfill")
	// CountBackfill counts the slots that Backfill would fill. It needs DryRun.
	CountBackfill = Call[httpapi.BackfillInput, httpapi.BackfillCount]("POST /v1/jobs/{job}/backfill")
	// ExplainJob says what happened to a job at an instant. Without an offset, the instant is in the time zone of the
	// job's schedule.
	ExplainJob = Call[Query, history.Explanation]("GET /v1/jobs/{job}/explain")
	// JobStats returns how the runs of a job went lately.
	JobStats = Call[Query, runs.JobStats]("GET /v1/jobs/{job}/stats")
	// Upcoming returns the next slots of a job.
	Upcoming = Call[Query, httpapi.Upcoming]("GET /v1/jobs/{job}/upcoming")
	// PreviewSchedule returns the slots of a schedule that belongs to no job yet.
	PreviewSchedule = Call[httpapi.PreviewInput, httpapi.Preview]("POST /v1/schedules/preview")
	// Forecast says how much is to come, step by step.
	Forecast = Call[Query, httpapi.Forecast]("GET /v1/forecast")
	// JobChanges lists the changes of a job, the newest first.
	JobChanges = Call[Query, list[audit.JobChange]]("GET /v1/jobs/{job}/changes")
	// Versions lists the versions of a job, the newest first.
	Versions = Call[Query, list[jobs.Version]]("GET /v1/jobs/{job}/versions")
	// Version returns a version of a job, compared with another one if the query names one as against.
	Version = Call[Query, jobs.WholeVersion]("GET /v1/jobs/{job}/versions/{version}")
	// RestoreVersion writes the definition of a version of a job as its next version.
	RestoreVersion = Call[Query, httpapi.Job]("POST /v1/jobs/{job}/versions/{version}/restore")
)

// The calls that are about events.
const (
	// EmitEvent emits an event.
	EmitEvent = Call[httpapi.EmitInput, events.Emitted]("POST /v1/events/{name}")
	// TryEvent says which jobs an event would run. It needs DryRun.
	TryEvent = Call[httpapi.EmitInput, events.WouldEmit]("POST /v1/events/{name}")
	// EventNames lists the names of events.
	EventNames = Call[Query, list[events.EventName]]("GET /v1/events")
	// Events lists the events of a name, newest first.
	Events = Call[Query, list[events.Event]]("GET /v1/events/{name}")
	// Event returns an event with a page of its runs.
	Event = Call[Query, events.EventDetails]("GET /v1/events/{name}/{event}")
)

// The calls that are about runs, dead letters and operations.
const (
	// Runs lists runs and recorded skips of all jobs.
	Runs = Call[Query, list[runs.Run]]("GET /v1/runs")
	// JobRuns lists the runs and recorded skips of one job.
	JobRuns = Call[Query, list[runs.Run]]("GET /v1/jobs/{job}/runs")
	// Run returns a run with its attempts.
	Run = Call[Query, runs.Run]("GET /v1/runs/{run}")
	// CancelRun cancels a run.
	CancelRun = Call[Query, runs.Run]("POST /v1/runs/{run}/cancel")
	// RerunRun starts another run of the slot of a run.
	RerunRun = Call[httpapi.RerunInput, runs.Run]("POST /v1/runs/{run}/rerun")
	// PlanRerun returns what a rerun would do with the steps of a workflow. It needs DryRun.
	PlanRerun = Call[httpapi.RerunInput, domain.RerunPlan]("POST /v1/runs/{run}/rerun")
	// ApproveRun approves a step that waits for approval, by its run or that of its workflow.
	ApproveRun = Call[httpapi.NoteInput, runs.Run]("POST /v1/runs/{run}/approve")
	// RejectRun rejects a step that waits for approval, by its run or that of its workflow.
	RejectRun = Call[httpapi.NoteInput, runs.Run]("POST /v1/runs/{run}/reject")
	// Approval returns the step of the link in a notice. The link's token, a parameter, stands in for a key.
	Approval = Call[Query, runs.LinkedStep]("GET /v1/approvals/{run}")
	// DeadLetters lists dead letters.
	DeadLetters = Call[Query, list[letters.DeadLetter]]("GET /v1/dead-letters")
	// DeadLetterGroups lists the open dead letters by job and reason.
	DeadLetterGroups = Call[Query, list[letters.DeadLetterGroup]]("GET /v1/dead-letters/groups")
	// ReplayDeadLetter runs the slot of a dead letter again.
	ReplayDeadLetter = Call[httpapi.NoteInput, runs.Run]("POST /v1/dead-letters/{run}/replay")
	// ResolveDeadLetter closes a dead letter that needs no replay.
	ResolveDeadLetter = Call[httpapi.NoteInput, letters.DeadLetter]("POST /v1/dead-letters/{run}/resolve")
	// ReplayDeadLetters starts an operation that replays the selected dead letters.
	ReplayDeadLetters = Call[httpapi.BulkInput, operation]("POST /v1/dead-letters/replay")
	// ResolveDeadLetters starts an operation that resolves the selected dead letters.
	ResolveDeadLetters = Call[httpapi.BulkInput, operation]("POST /v1/dead-letters/resolve")
	// CountReplays counts the dead letters that ReplayDeadLetters would replay. It needs DryRun.
	CountReplays = Call[httpapi.BulkInput, httpapi.Matched]("POST /v1/dead-letters/replay")
	// Operations lists operations on many runs or jobs.
	Operations = Call[Query, list[operation]]("GET /v1/operations")
	// Operation returns an operation with its progress.
	Operation = Call[Query, operation]("GET /v1/operations/{operation}")
	// CancelOperation stops an operation. What it has done stays done.
	CancelOperation = Call[Query, operation]("POST /v1/operations/{operation}/cancel")
)

// The calls that are about replicas and what holds work back.
const (
	// Overview returns what needs attention now, and how the last 24 hours went.
	Overview = Call[Query, httpapi.Overview]("GET /v1/overview")
	// Queues lists the queues, with what waits in them and why.
	Queues = Call[Query, httpapi.QueueList]("GET /v1/queues")
	// Replicas lists the replicas.
	Replicas = Call[Query, httpapi.ReplicaList]("GET /v1/replicas")
	// Breakers lists the hosts whose runs are held back.
	Breakers = Call[Query, httpapi.BreakerList]("GET /v1/breakers")
	// ResetBreakers resets the breakers of the host that the body names; of every host if it names none.
	ResetBreakers = Call[map[string]string, httpapi.BreakersReset]("POST /v1/breakers/reset")
	// SetAside lists what fails by itself and was set aside.
	SetAside = Call[Query, httpapi.AsideList]("GET /v1/set-aside")
	// RetryAside has an item tried again that is set aside.
	RetryAside = Call[any, aside.SetAside]("POST /v1/set-aside/{kind}/{item}/retry")
	// DropAside gives up an item that is set aside.
	DropAside = Call[Query, any]("DELETE /v1/set-aside/{kind}/{item}")
	// Freeze stops all claims of a tenant or of the deployment.
	Freeze = Call[httpapi.FreezeInput, httpapi.FreezeState]("POST /v1/freeze")
	// Unfreeze ends a freeze.
	Unfreeze = Call[httpapi.FreezeInput, httpapi.FreezeState]("POST /v1/unfreeze")
	// Frozen says what is frozen.
	Frozen = Call[Query, httpapi.FreezeState]("GET /v1/freeze")
	// Limits lists the limits of the tenant.
	Limits = Call[Query, httpapi.LimitList]("GET /v1/limits")
	// PutLimit creates a limit or changes it.
	PutLimit = Call[httpapi.LimitInput, limits.Limit]("PUT /v1/limits/{limit}")
	// DeleteLimit deletes a limit that no job names.
	DeleteLimit = Call[Query, any]("DELETE /v1/limits/{limit}")
)

// The calls that are about callers and their tenants.
const (
	// Caller says what the credentials of a client may do, and for which tenant.
	Caller = Call[Query, httpapi.Caller]("GET /v1/caller")
	// OwnTenant returns the tenant that requests act for.
	OwnTenant = Call[Query, httpapi.TenantWithUsage]("GET /v1/tenant")
	// AuditLog lists changes, the newest first.
	AuditLog = Call[Query, list[audit.Entry]]("GET /v1/audit-log")
	// Notices lists notices that recipients took, and what waits for recipients.
	Notices = Call[Query, httpapi.Notices]("GET /v1/notices")
	// Notice returns a notice with the jobs that it told of.
	Notice = Call[Query, notices.Detail]("GET /v1/notices/{notice}")
	// TestNotify sends test notices.
	TestNotify = Call[httpapi.NotifyTest, httpapi.NotifyResults]("POST /v1/notify/test")
	// APIKeys lists the API keys of the tenant.
	APIKeys = Call[Query, list[tenants.Key]]("GET /v1/api-keys")
	// CreateAPIKey creates an API key. Its secret is shown this once.
	CreateAPIKey = Call[httpapi.KeyInput, httpapi.NewKey]("POST /v1/api-keys")
	// RevokeAPIKey ends an API key.
	RevokeAPIKey = Call[Query, any]("DELETE /v1/api-keys/{key}")
	// Secrets lists the named secrets of the tenant, without their values.
	Secrets = Call[Query, list[secrets.Secret]]("GET /v1/secrets")
	// SigningSecrets lists the signing secrets of the tenant, without their values.
	SigningSecrets = Call[Query, httpapi.SigningSecretList]("GET /v1/signing-secrets")
)
