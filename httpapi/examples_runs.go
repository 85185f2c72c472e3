package httpapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// Examples of the documentation: the page of one run, and reruns.
var (
	exampleRerunInput = json.RawMessage(`{"body":{"range":"2026-11-30"},"same_key":false}`)
	examplePendingRun = exampleRunOf(domain.TriggerManual, at("2026-12-01T15:20:11.803Z"))
	exampleRerun      = exampleManualRerun()

	exampleCompletedRun = exampleEndedRun(`{"documents":41877}`)
)

// exampleListedRun is a run as lists show it.
func exampleListedRun() runs.Run {
	return runs.Run{
		ID: exampleRunID, JobID: exampleJobID, Job: "daily-invoice-gen", Tenant: "default", Queue: "default",
		Trigger: domain.TriggerSchedule, ScheduledFor: at("2026-12-01T11:00:00Z"), Status: domain.StatusSucceeded,
		Attempt: 2, MaxAttempts: 3, JobVersion: 7,
		Replica: &exampleReplicaID, DueAt: at("2026-12-01T11:00:00.421Z"), CreatedAt: at("2026-12-01T11:00:00.423Z"),
		ClaimedAt: new(at("2026-12-01T11:00:08.671Z")), StartedAt: new(at("2026-12-01T11:00:08.673Z")),
		FinishedAt: new(at("2026-12-01T11:00:10.044Z")), HTTPStatus: new(200),
	}
}

// exampleEndedRun is the same run with its attempts and a result.
func exampleEndedRun(result string) runs.Run {
	run := exampleListedRun()
	run.Result = json.RawMessage(result)
	run.Attempts = []runs.Attempt{
		{
			Number: 1, StartedAt: at("2026-12-01T11:00:00.425Z"), FinishedAt: new(at("2026-12-01T11:00:00.508Z")),
			Outcome: domain.AttemptFailed, Reason: new(domain.ReasonHTTP5xx), HTTPStatus: new(503),
			Error: new("the target answered 503"), Response: new("try again later"), Replica: &exampleReplicaID,
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
	run.Request = &domain.SentRequest{
		Method: "POST", URL: "https://billing.internal/invoices", Body: json.RawMessage(`{"range":"yesterday"}`),
		Headers: map[string]string{
			"Authorization": domain.Mask, "Content-Type": "application/json",
			"Idempotency-Key": run.JobID.String() + ":1796122800", "Punctual-Attempt": "2", "Punctual-Fencing-Token": "90144",
			"Punctual-Job": run.Job, "Punctual-Run": run.ID.String(), "Punctual-Scheduled-For": "2026-12-01T11:00:00Z",
			"Punctual-Trigger": "schedule", "Webhook-Id": run.ID.String(), "Webhook-Signature": domain.Mask,
			"Webhook-Timestamp": "1796122834",
		},
	}
	return run
}

// exampleRunOf is a run that was made for a slot, and waits.
func exampleRunOf(trigger domain.Trigger, slot time.Time) runs.Run {
	made := at("2026-12-01T15:20:11.803Z")
	return runs.Run{
		ID: uuid.MustParse("019ada4e-9c3b-7d52-a1c8-5be0f7d96a34"), JobID: exampleJobID, Job: "daily-invoice-gen",
		Tenant: "default", Queue: "default", Trigger: trigger, ScheduledFor: slot, Status: domain.StatusPending,
		MaxAttempts: 3, JobVersion: 7, DueAt: made, CreatedAt: made,
	}
}

func exampleManualRerun() runs.Run {
	run := exampleRunOf(domain.TriggerManual, at("2026-12-01T11:00:00Z"))
	run.ID, run.RerunOf = uuid.MustParse("019ada51-07f2-7b6e-8d13-64c2a9f01e77"), &exampleRunID
	return run
}

func exampleCancelledRun() runs.Run {
	run := examplePendingRun
	run.Status, run.Reason = domain.StatusCancelled, new(domain.ReasonCancelled)
	run.FinishedAt, run.Attempts = new(at("2026-12-01T15:20:31.114Z")), []runs.Attempt{}
	return run
}
