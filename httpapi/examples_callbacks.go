package httpapi

import (
	"encoding/json"

	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// Examples of the documentation: what targets report.
var (
	exampleHeartbeat  = json.RawMessage(`{"progress":{"rows":41200}}`)
	exampleCompletion = json.RawMessage(`{"result":{"documents":41877}}`)
	exampleFailure    = json.RawMessage(`{"error":"the ledger is locked","retry":true}`)

	exampleBeat     = Heartbeat{Deadline: at("2026-12-01T11:09:12.004Z")}
	exampleProgress = Progress{
		Attempt: 2, Progress: json.RawMessage(`{"rows":41200}`), RecordedAt: new(at("2026-12-01T11:04:12.004Z")),
	}
	exampleFailedRun = exampleRetryingRun()
)

func exampleRetryingRun() runs.Run {
	run, claimed, started, accepted, next := exampleListedRun(), at("2026-12-01T11:00:04.217Z"),
		at("2026-12-01T11:00:04.219Z"), at("2026-12-01T11:00:04.302Z"), at("2026-12-01T11:08:03.551Z")
	run.Status, run.Reason, run.Attempt, run.HTTPStatus, run.Error = domain.StatusRetrying,
		new(domain.ReasonFailed), 1, nil, new("the ledger is locked")
	run.ClaimedAt, run.StartedAt, run.AcceptedAt, run.FinishedAt, run.NextAttemptAt = &claimed, &started, &accepted,
		nil, &next
	run.Attempts = []runs.Attempt{
		{
			Number: 1, StartedAt: started, FinishedAt: new(at("2026-12-01T11:07:33.551Z")), Outcome: domain.AttemptFailed,
			Error: new("the ledger is locked"),
		},
	}
	return run
}
