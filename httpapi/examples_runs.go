package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// Examples of the documentation: the page of one run, and reruns.
var (
	exampleRerunInput = json.RawMessage(`{"body":{"range":"2026-11-30"},"same_key":false}`)
	exampleRerun      = showRerun()

	exampleCompletedRun = showCompletedRun()
)

func showCompletedRun() Run {
	run := showRunWithAttempts(exampleRunRecord())
	run.Result = json.RawMessage(`{"documents":41877}`)
	return run
}

func showWholeRun() Run {
	run := showRunWithAttempts(exampleRunRecord())
	run.Result = json.RawMessage(`{"invoices":412}`)
	run.Request = &SentRequest{
		Method: "POST", URL: "https://billing.internal/invoices", Body: json.RawMessage(`{"range":"yesterday"}`),
		Headers: map[string]string{
			"Authorization": scheduler.Mask, "Content-Type": "application/json",
			"Idempotency-Key": run.JobID.String() + ":1796122800", "Punctual-Attempt": "2", "Punctual-Fencing-Token": "90144",
			"Punctual-Job": run.Job, "Punctual-Run": run.ID.String(), "Punctual-Scheduled-For": "2026-12-01T11:00:00Z",
			"Punctual-Trigger": "schedule", "Webhook-Id": run.ID.String(), "Webhook-Signature": scheduler.Mask,
			"Webhook-Timestamp": "1796122834",
		},
	}
	return run
}

func showRerun() Run {
	run := showRun(examplePendingRecord())
	run.ID, run.RerunOf, run.ScheduledFor = uuid.MustParse("019ada51-07f2-7b6e-8d13-64c2a9f01e77"), &exampleRunID,
		at("2026-12-01T11:00:00Z")
	return run
}
