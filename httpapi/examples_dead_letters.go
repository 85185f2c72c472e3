package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/scheduler"
	"punctual/store"
)

// Examples of the documentation: dead letters and operations.
var (
	exampleReplayNote  = json.RawMessage(`{"note":"the invoice service is back"}`)
	exampleResolveNote = json.RawMessage(`{"note":"sent by hand"}`)
	exampleBulk        = json.RawMessage(`{"filter":{"reason":"http_5xx","from":"2026-12-01T00:00:00Z",` +
		`"label":{"team":"billing"}},"latest_per_job":true,"max_per_second":10,"note":"the invoice service was down"}`)

	exampleBackfill = json.RawMessage(`{"from":"2026-11-01T00:00:00Z","to":"2026-12-01T00:00:00Z","max_per_second":10,` +
		`"note":"invoices of November with the new template"}`)

	exampleDeadLetters        = DeadLetterList{Data: []DeadLetter{showDeadLetter(exampleDeadLetter())}}
	exampleResolved           = showDeadLetter(exampleResolvedRecord())
	exampleReplay             = showRun(exampleReplayRecord())
	exampleOperation          = showOperation(exampleOperationRecord())
	exampleCancelledOperation = showOperation(exampleCancelledOperationRecord())
	exampleBackfillOperation  = showOperation(exampleBackfillRecord())
)

func exampleDeadLetter() store.DeadLetterRecord {
	return store.DeadLetterRecord{
		RunID: exampleRunID, JobID: exampleJobID, Job: "daily-invoice-gen", Trigger: scheduler.TriggerSchedule, JobVersion: 7,
		ScheduledFor: at("2026-12-01T11:00:00Z"), DiedAt: at("2026-12-01T11:03:02.774Z"), Reason: scheduler.ReasonHTTP5xx,
		Attempts: 3, HTTPStatus: 503, Error: "the target answered 503",
	}
}

func exampleResolvedRecord() store.DeadLetterRecord {
	d, resolved := exampleDeadLetter(), at("2026-12-01T15:20:11.803Z")
	d.ResolvedAt, d.Note = &resolved, "sent by hand"
	return d
}

func exampleReplayRecord() store.RunRecord {
	run, of := examplePendingRecord(), exampleRunID
	run.Trigger, run.ScheduledFor, run.ReplayOf = scheduler.TriggerReplay, at("2026-12-01T11:00:00Z"), &of
	return run
}

func exampleOperationRecord() store.OperationRecord {
	return store.OperationRecord{
		ID: uuid.MustParse("019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42"), Kind: store.OperationReplay,
		State: store.OperationRunning, MaxPerSecond: 10, Note: "the invoice service was down", Matched: 1204, Done: 350,
		CreatedAt: at("2026-12-01T15:22:56.196Z"),
	}
}

func exampleCancelledOperationRecord() store.OperationRecord {
	o, finished := exampleOperationRecord(), at("2026-12-01T15:23:31.02Z")
	o.State, o.FinishedAt = store.OperationCancelled, &finished
	return o
}

func exampleBackfillRecord() store.OperationRecord {
	o := exampleOperationRecord()
	o.Kind, o.JobID, o.Matched, o.Done, o.Note = store.OperationBackfill, &exampleJobID, 31, 0,
		"invoices of November with the new template"
	return o
}
