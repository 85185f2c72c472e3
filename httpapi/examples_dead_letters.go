package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/runs"
)

// Examples of the documentation: dead letters and operations.
var (
	exampleReplayNote  = json.RawMessage(`{"note":"the invoice service is back"}`)
	exampleResolveNote = json.RawMessage(`{"note":"sent by hand"}`)
	exampleBulk        = json.RawMessage(`{"filter":{"reason":"http_5xx","from":"2026-12-01T00:00:00Z",` +
		`"label":{"team":"billing"}},"latest_per_job":true,"max_per_second":10,"note":"the invoice service was down"}`)

	exampleBackfill = json.RawMessage(`{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","max_per_second":10,` +
		`"note":"invoices of November with the new template"}`)

	exampleDeadLetters        = List[letters.DeadLetter]{Data: []letters.DeadLetter{exampleDeadLetter()}}
	exampleResolved           = exampleResolvedLetter()
	exampleReplay             = exampleReplayingRun()
	exampleOperation          = exampleRunningOperation()
	exampleCancelledOperation = exampleEndedOperation()
	exampleBackfillOperation  = exampleRunningBackfill()

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
		JobID: d.JobID, Job: d.Job, Reason: d.Reason, Count: 1204, OldestSlot: at("2026-11-30T11:00:00Z"),
		NewestSlot: d.ScheduledFor, NewestRun: d.RunID, HTTPStatus: d.HTTPStatus, Error: d.Error,
	}
}

func exampleJobsOperation(action jobs.Action) letters.Operation {
	o := exampleRunningOperation()
	o.Kind, o.Matched, o.Done, o.MaxPerSecond = letters.OperationKind(action), 500, 200, nil
	o.Note = new("the warehouse moves")
	return o
}

func exampleDeadLetter() letters.DeadLetter {
	return letters.DeadLetter{
		RunID: exampleRunID, JobID: exampleJobID, Job: "daily-invoice-gen", Trigger: domain.TriggerSchedule, JobVersion: 7,
		ScheduledFor: at("2026-12-01T11:00:00Z"), DiedAt: at("2026-12-01T11:03:02.774Z"),
		Reason: new(domain.ReasonHTTP5xx), Attempts: 3, HTTPStatus: new(503), Error: new("the target answered 503"),
	}
}

func exampleResolvedLetter() letters.DeadLetter {
	d, resolved := exampleDeadLetter(), at("2026-12-01T15:20:11.803Z")
	d.ResolvedAt, d.Note = &resolved, new("sent by hand")
	return d
}

func exampleReplayingRun() runs.Run {
	run := exampleRunOf(domain.TriggerReplay, at("2026-12-01T11:00:00Z"))
	run.ReplayOf = &exampleRunID
	return run
}

func exampleRunningOperation() letters.Operation {
	return letters.Operation{
		ID: uuid.MustParse("019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"), Kind: letters.OperationReplay,
		State: letters.OperationRunning, MaxPerSecond: new(10), Note: new("the invoice service was down"),
		Matched: 1204, Done: 350, CreatedAt: at("2026-12-01T15:22:56.196Z"),
	}
}

func exampleEndedOperation() letters.Operation {
	o, finished := exampleRunningOperation(), at("2026-12-01T15:23:31.02Z")
	o.State, o.FinishedAt = letters.OperationCancelled, &finished
	return o
}

func exampleRunningBackfill() letters.Operation {
	o := exampleRunningOperation()
	o.Kind, o.JobID, o.Matched, o.Done, o.Note = letters.OperationBackfill, &exampleJobID, 31, 0,
		new("invoices of November with the new template")
	return o
}
