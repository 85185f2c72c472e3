package httpapi

import (
	"encoding/json"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/runs"
)

var (
	exampleApproveNote = json.RawMessage(`{"note":"the numbers are right"}`)
	exampleRejectNote  = json.RawMessage(`{"note":"wrong day"}`)

	exampleStepID = uuid.MustParse("019ad964-3b80-8f20-b2c4-0a9d6e5f1b73")

	exampleApproval = runs.LinkedStep{
		Run: exampleStepID, Workflow: exampleRunID, Job: "nightly-etl", Tenant: "default", Step: "approve",
		Status: domain.StatusRunning, Since: new(moment("2026-12-01T02:04:10.044Z")),
		Until: new(moment("2026-12-02T02:04:10.051Z")), SentTo: "Slack hooks.slack.com",
	}
)

// exampleStep is the run of a step that was approved.
func exampleApproved() runs.Run {
	run := exampleEndedRun(`{"decision":"approved","by":"key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11)",` +
		`"note":"the numbers are right","at":"2026-12-01T11:00:10.044Z"}`)
	run.ID, run.Job, run.Step, run.Workflow = exampleStepID, "nightly-etl", "approve", &exampleRunID
	run.Trigger, run.Attempt, run.MaxAttempts, run.HTTPStatus = domain.TriggerStep, 1, 1, nil
	run.Attempts = run.Attempts[len(run.Attempts)-1:]
	run.Attempts[0].Number, run.Attempts[0].HTTPStatus = 1, nil
	return run
}

func exampleRejected() runs.Run {
	run := exampleApproved()
	run.Status, run.Reason, run.Result = domain.StatusDead, new(domain.ReasonRejected), nil
	run.Error = new("rejected by key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11) at 2026-12-01T11:00:10Z: wrong day")
	run.Attempts[0].Outcome, run.Attempts[0].Reason, run.Attempts[0].Error = domain.AttemptFailed, run.Reason, run.Error
	return run
}

func exampleDecided() runs.LinkedStep {
	a := exampleApproval
	a.Status, a.Until = domain.StatusDead, nil
	a.Decision = "rejected by the link sent to Slack hooks.slack.com at 2026-12-01T08:20:11Z: wrong day"
	return a
}
