package httpapi

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/runs"
)

// Examples of the documentation: the page of one run, and reruns.
var (
	exampleRerunInput = json.RawMessage(`{"body":{"range":"2026-11-30"},"same_key":false}`)
	exampleRerunPlan  = domain.RerunPlan{
		Runs: []string{"load", "clean-up"}, Kept: []string{"transform", "check"}, Set: []string{"extract"},
		Refused: []domain.RefusedStep{},
	}
	examplePendingRun = exampleRunOf(domain.TriggerManual, moment("2026-12-01T15:20:11.803Z"))

	exampleTriggerBatch = json.RawMessage(`{"items":[` +
		`{"delay":"1h","key":"order-42","on_conflict":"replace","body":{"order":42}},{"at":"2026-12-01T16:00:00Z"}]}`)
	exampleDated = Dated{
		Key: "order-42", Run: exampleDatedID, DueAt: moment("2026-12-01T16:00:00Z"), Created: true,
	}
	exampleDatedRun = showDated(jobs.Dated{
		Key: "order-42", Run: exampleDatedID, DueAt: exampleDated.DueAt, CreatedAt: moment("2026-12-01T15:00:00Z"),
		Sequence: new(int64(7)), TriggeredBy: "editor key shop (punctual_3fPq)",
	})
	exampleDatedID = uuid.MustParse("019ada6b-9c80-7b21-8f6e-1d2c3b4a5968")

	exampleCompletedRun = exampleEndedRun(`{"documents":41877}`)
)

// exampleListedRun is a run as lists show it.
func exampleListedRun() runs.Run {
	return runs.Run{
		ID: exampleRunID, JobID: exampleJobID, Job: "daily-invoice-gen", Tenant: "default", Queue: "default",
		Trigger: domain.TriggerSchedule, ScheduledFor: moment("2026-12-01T11:00:00Z"), Status: domain.StatusSucceeded,
		Attempt: 2, MaxAttempts: 3, JobVersion: 7,
		Replica: &exampleReplicaID, DueAt: moment("2026-12-01T11:00:00.421Z"), CreatedAt: moment("2026-12-01T11:00:00.423Z"),
		ClaimedAt: new(moment("2026-12-01T11:00:08.671Z")), StartedAt: new(moment("2026-12-01T11:00:08.673Z")),
		FinishedAt: new(moment("2026-12-01T11:00:10.044Z")), HTTPStatus: new(200),
	}
}

// exampleEndedRun is the same run with its attempts and a result.
func exampleEndedRun(result string) runs.Run {
	run := exampleListedRun()
	run.Result = json.RawMessage(result)
	run.Attempts = []runs.Attempt{
		{
			Number: 1, StartedAt: moment("2026-12-01T11:00:00.425Z"), FinishedAt: new(moment("2026-12-01T11:00:00.508Z")),
			Outcome: domain.AttemptFailed, Reason: new(domain.ReasonHTTP5xx), HTTPStatus: new(503),
			Error: new("the target answered 503: try again later"), Response: new("try again later"), Replica: &exampleReplicaID,
			Headers: map[string]string{
				"content-type": "text/plain", "date": "Tue, 01 Dec 2026 11:00:04 GMT", "retry-after": "30",
			},
		},
		{
			Number: 2, StartedAt: *run.StartedAt, FinishedAt: run.FinishedAt, Outcome: domain.AttemptSucceeded,
			HTTPStatus: new(200), Replica: &exampleReplicaID,
		},
	}
	return run
}

// exampleWholeRun is a run as its own page shows it.
func exampleWholeRun() runs.Run {
	run := exampleEndedRun(`{"invoices":412}`)
	run.TraceID = domain.TraceID(run.ID, "")
	run.LogURL = "https://logs.example.com/search?q=" + run.ID.String()
	run.Request = &domain.SentRequest{
		Method: "POST", URL: "https://billing.internal/invoices", Body: json.RawMessage(`{"range":"yesterday"}`),
		Headers: map[string]string{
			"Authorization": domain.Mask, "Content-Type": "application/json",
			"Idempotency-Key": run.JobID.String() + ":1796122800", "Punctual-Attempt": "2", "Punctual-Fencing-Token": "90144",
			"Punctual-Job": run.Job, "Punctual-Run": run.ID.String(), "Punctual-Scheduled-For": "2026-12-01T11:00:00Z",
			"Punctual-Trigger": "schedule", "Traceparent": "00-" + run.TraceID + "-00f067aa0ba902b7-01",
			"Webhook-Id": run.ID.String(), "Webhook-Signature": domain.Mask, "Webhook-Timestamp": "1796122834",
		},
	}
	return run
}

// exampleRunOf is a run that was made for a slot, and waits.
func exampleRunOf(trigger domain.Trigger, slot time.Time) runs.Run {
	made := moment("2026-12-01T15:20:11.803Z")
	return runs.Run{
		ID: uuid.MustParse("019ada4e-9c3b-7d52-a1c8-5be0f7d96a34"), JobID: exampleJobID, Job: "daily-invoice-gen",
		Tenant: "default", Queue: "default", Trigger: trigger, ScheduledFor: slot, Status: domain.StatusPending,
		MaxAttempts: 3, JobVersion: 7, DueAt: made, CreatedAt: made,
	}
}

func exampleManualRerun() runs.Run {
	run := exampleRunOf(domain.TriggerManual, moment("2026-12-01T11:00:00Z"))
	run.ID, run.RerunOf = uuid.MustParse("019ada51-07f2-7b6e-8d13-64c2a9f01e77"), &exampleRunID
	return run
}

func exampleCancelledRun() runs.Run {
	run := examplePendingRun
	run.Status, run.Reason = domain.StatusCancelled, new(domain.ReasonCancelled)
	run.FinishedAt, run.Attempts = new(moment("2026-12-01T15:20:31.114Z")), []runs.Attempt{}
	return run
}

// Examples of the documentation: what targets report.
var (
	exampleHeartbeat  = json.RawMessage(`{"progress":{"rows":41200}}`)
	exampleCompletion = json.RawMessage(`{"result":{"documents":41877}}`)
	exampleFailure    = json.RawMessage(`{"error":"the ledger is locked","retry":true}`)

	exampleBeat     = Heartbeat{Deadline: moment("2026-12-01T11:09:12.004Z")}
	exampleProgress = Progress{
		Attempt: 2, Progress: json.RawMessage(`{"rows":41200}`), RecordedAt: new(moment("2026-12-01T11:04:12.004Z")),
	}
)

func exampleRetryingRun() runs.Run {
	run, claimed, started, accepted, next := exampleListedRun(), moment("2026-12-01T11:00:04.217Z"),
		moment("2026-12-01T11:00:04.219Z"), moment("2026-12-01T11:00:04.302Z"), moment("2026-12-01T11:08:03.551Z")
	run.Status, run.Reason, run.Attempt, run.HTTPStatus, run.Error = domain.StatusRetrying,
		new(domain.ReasonFailed), 1, nil, new("the ledger is locked")
	run.ClaimedAt, run.StartedAt, run.AcceptedAt, run.FinishedAt, run.NextAttemptAt = &claimed, &started, &accepted,
		nil, &next
	run.Attempts = []runs.Attempt{
		{
			Number: 1, StartedAt: started, FinishedAt: new(moment("2026-12-01T11:07:33.551Z")), Outcome: domain.AttemptFailed,
			Error: new("the ledger is locked"),
		},
	}
	return run
}

// Examples of the documentation: dead letters and operations.
var (
	exampleReplayNote  = json.RawMessage(`{"note":"the invoice service is back"}`)
	exampleResolveNote = json.RawMessage(`{"note":"sent manually"}`)
	exampleBulk        = json.RawMessage(`{"filter":{"reason":"http_5xx","from":"2026-12-01T00:00:00Z",` +
		`"label":{"team":"billing"}},"latest_per_job":true,"max_per_second":10,"note":"the invoice service was down"}`)

	exampleBackfill = json.RawMessage(`{"from":"2026-11-01","to":"2026-12-01","max_per_second":10,` +
		`"note":"invoices of November with the new template"}`)

	exampleCounted = BackfillCount{
		Matched: 31, NewRuns: 4, From: moment("2026-11-01T07:00:00Z"), To: moment("2026-12-01T08:00:00Z"),
		FromLocal: "2026-11-01T00:00:00-07:00", ToLocal: "2026-12-01T00:00:00-08:00", Timezone: "America/Los_Angeles",
	}

	exampleDeadLetters = List[letters.DeadLetter]{Data: []letters.DeadLetter{exampleDeadLetter()}}
	exampleOperation   = exampleRunningOperation()

	examplePauseJobs = json.RawMessage(`{"filter":{"state":"active","labels":{"team":"billing"}},` +
		`"until":"2026-12-01T09:00:00Z","note":"the warehouse moves"}`)
	exampleResumeJobs = json.RawMessage(`{"filter":{"state":"paused","labels":{"team":"billing"}},` +
		`"note":"it has moved"}`)
	exampleDeleteJobs = json.RawMessage(`{"filter":{"name":"reminder-2025-","state":"completed"},"max_per_second":50}`)

	exampleGroups = List[letters.DeadLetterGroup]{Data: []letters.DeadLetterGroup{exampleGroup()}}
)

func exampleGroup() letters.DeadLetterGroup {
	d := exampleDeadLetter()
	return letters.DeadLetterGroup{
		JobID: d.JobID, Job: d.Job, Reason: d.Reason, Count: 1204, OldestSlot: moment("2026-11-30T11:00:00Z"),
		NewestSlot: d.ScheduledFor, NewestRun: d.RunID, HTTPStatus: d.HTTPStatus, Error: d.Error,
	}
}

func exampleJobsOperation(action jobs.Action) letters.Operation {
	o := exampleRunningOperation()
	o.Kind, o.Matched, o.Done, o.MaxPerSecond = letters.OperationKind(action), 500, 200, nil
	o.Request = json.RawMessage(`{"labels":{"team":"billing"}}`)
	o.Note = new("the warehouse moves")
	return o
}

func exampleDeadLetter() letters.DeadLetter {
	return letters.DeadLetter{
		RunID: exampleRunID, JobID: exampleJobID, Job: "daily-invoice-gen", Trigger: domain.TriggerSchedule, JobVersion: 7,
		ScheduledFor: moment("2026-12-01T11:00:00Z"), DiedAt: moment("2026-12-01T11:03:02.774Z"),
		Reason: new(domain.ReasonHTTP5xx), Attempts: 3, HTTPStatus: new(503),
		Error: new("the target answered 503: try again later"),
	}
}

func exampleResolvedLetter() letters.DeadLetter {
	d, resolved := exampleDeadLetter(), moment("2026-12-01T15:20:11.803Z")
	d.ResolvedAt, d.Note = &resolved, new("sent manually")
	return d
}

func exampleReplayingRun() runs.Run {
	run := exampleRunOf(domain.TriggerReplay, moment("2026-12-01T11:00:00Z"))
	run.ReplayOf = &exampleRunID
	return run
}

func exampleRunningOperation() letters.Operation {
	return letters.Operation{
		ID: uuid.MustParse("019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"), Kind: letters.OperationReplay,
		State: letters.OperationRunning, MaxPerSecond: new(10), Note: new("the invoice service was down"),
		Matched: 1204, Done: 350, CreatedAt: moment("2026-12-01T15:22:56.196Z"),
		Request:     json.RawMessage(`{"reason":"http_5xx","label":{"team":"billing"},"latest_per_job":true}`),
		RequestedBy: "key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11)",
	}
}

func exampleReadOperation() letters.Operation {
	o := exampleRunningOperation()
	o.Outcomes = &letters.RunOutcomes{Runs: 350, Outcomes: runs.Outcomes{Succeeded: 290, Dead: 48, Unended: 12}}
	o.Outcomes.Rate()
	return o
}

func exampleEndedOperation() letters.Operation {
	o, finished := exampleRunningOperation(), moment("2026-12-01T15:23:31.02Z")
	o.State, o.FinishedAt = letters.OperationCancelled, &finished
	return o
}

func exampleRunningBackfill() letters.Operation {
	o := exampleRunningOperation()
	o.Kind, o.JobID, o.Matched, o.Done, o.Note = letters.OperationBackfill, &exampleJobID, 31, 0,
		new("invoices of November with the new template")
	o.Request = json.RawMessage(fmt.Sprintf(`{"job_id":%q,"job_version":3,"from":"2026-11-01T00:00:00Z",`+
		`"to":"2026-12-01T00:00:00Z","rerun":false,"concurrency":"one_at_a_time"}`, exampleJobID))
	o.WaitingForRun = &exampleRunID
	return o
}
