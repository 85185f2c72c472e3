package httpapi

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/audit"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/pg"
	"punctual/store/runs"
)

// Examples of the documentation.
var (
	exampleJobInput = json.RawMessage(`{"name":"daily-invoice-gen","labels":{"team":"billing"},` +
		`"schedule":{"cron":"0 3 * * *","timezone":"America/Los_Angeles"},` +
		`"concurrency_policy":"forbid",` +
		`"target":{"url":"https://billing.internal/invoices","body":{"range":"yesterday"}},` +
		`"timeout":"10m","retry":{"max_attempts":3},` +
		`"notify":[{"on":["dead","recovered"],"url":"https://pager.internal/hook"}]}`)
	exampleWorkflow = json.RawMessage(`{"name":"daily-invoice-gen","labels":{"team":"billing"},` +
		`"schedule":{"cron":"0 3 * * *","timezone":"America/Los_Angeles"},"retry":{"max_attempts":3},"max_duration":"2h",` +
		`"steps":[{"name":"collect","target":{"url":"https://billing.internal/collect","body":{"range":"yesterday"}}},` +
		`{"name":"invoices","depends_on":["collect"],"target":{"url":"https://billing.internal/invoices"},"timeout":"10m"},` +
		`{"name":"report","depends_on":["invoices"],"when":"ended","target":{"url":"https://mail.internal/send"}}]}`)
	examplePatch   = json.RawMessage(`{"timeout":"15m","labels":{"team":null},"retry":{"max_attempts":5}}`)
	examplePause   = json.RawMessage(`{"note":"the warehouse moves","until":"2026-12-01T09:00:00Z"}`)
	exampleResume  = json.RawMessage(`{"note":"it has moved"}`)
	exampleTrigger = json.RawMessage(`{"body":{"range":"2026-11-30"}}`)
	exampleBatch   = json.RawMessage(`{"jobs":[{"name":"reminder-4711","schedule":{"at":"2026-12-01T09:00:00+01:00"},` +
		`"target":{"url":"https://mail.internal/send"}}],"on_conflict":"skip"}`)
	examplePreview = json.RawMessage(`{"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},` +
		`"from":"2026-03-28T00:00:00Z","n":2}`)

	exampleJob         = showOne(exampleRecord(exampleJobInput), domain.DefaultJitter)
	exampleWithSteps   = showOne(exampleRecord(exampleWorkflow), domain.DefaultJitter)
	examplePausedJob   = showJob(examplePausedRecord(), domain.DefaultJitter)
	exampleRuns        = List[ListedRun]{Data: []ListedRun{{Run: exampleListedRun()}}}
	exampleBatchAnswer = BatchAnswer{
		Data: []BatchItem{{ID: exampleJobID, Name: "reminder-4711", Result: jobs.BatchCreated}},
	}
	examplePreviewAnswer = Preview{
		Schedule: domain.Schedule{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, Words: pg.OrNull("daily 02:30"),
		Warnings: []string{}, Slots: exampleSlots,
	}
	exampleSlots = []PreviewSlot{
		{ScheduledFor: moment("2026-03-28T01:30:00Z"), Local: "2026-03-28T02:30:00+01:00"},
		{
			ScheduledFor: moment("2026-03-29T01:30:00Z"), Local: "2026-03-29T03:30:00+02:00",
			Note: pg.OrNull("02:30 does not exist on this day; moved to 03:30"),
		},
	}
	exampleUpcoming = Upcoming{Slots: []UpcomingSlot{
		{
			ScheduledFor: moment("2026-12-02T11:00:00Z"), NextRunAt: moment("2026-12-02T11:00:00.421Z"),
			Local: "2026-12-02T03:00:00-08:00",
		},
	}}

	// By status, for answers that are the same for all operations. problemExample has the others.
	problemExamples = map[string]*problem.Problem{
		"400": problem.New(problem.CodeMalformed,
			"The body is not JSON at byte 17 (line 2, column 5): invalid character '}' looking for beginning of value."),
		"401": exampleOf(domain.ErrRunToken),
		"429": problem.New(problem.CodeRateLimited, "Your tenant may send 200 requests a second, on all replicas together."),
		"410": problem.New(problem.CodeCursorGone, "Changes after the cursor were removed, because they are older than the "+
			"tenant's changes_kept; leave after out to start again from the oldest change that is kept."),
		"412": problem.New(problem.CodeVersion, "The job has been changed since."),
		"422": problem.New(problem.CodeInvalid, "2 fields are not valid.",
			problem.At("body.shedule", "unknown field; did you mean schedule?"),
			problem.At("body.timeout", `"soon" is not a duration; write one such as "90s", "5m" or "24h"`)),
		"503": problem.New(problem.CodeBusy,
			"This replica is computing another forecast, and this one has waited for 8s; try again."),
		"500": api.Internal(exampleRequestID),
	}
)

const exampleRequestID = "7UBLQ5SRJ2ZTNBQFRQTMLNPKJE"

var (
	exampleJobID     = uuid.MustParse("019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11")
	exampleRunID     = uuid.MustParse("019ad964-3b80-8b21-8f6e-1d2c3b4a5968")
	exampleReplicaID = uuid.MustParse("4f0c7d4e-51a2-4c0e-9b0e-6f1f3f7c2a10")
)

func exampleRecord(of json.RawMessage) jobs.Record {
	var input JobInput
	if err := body.Fill(&input, of); err != nil {
		panic(err)
	}
	slot, due, run := moment("2026-12-02T11:00:00Z"), moment("2026-12-02T11:00:00.421Z"), exampleListedRun()
	return jobs.Record{
		ID: exampleJobID, Tenant: "default", Version: 7, State: domain.JobActive, Definition: input.Definition,
		NextScheduledFor: &slot, NextRunAt: &due, LastRun: &run,
		CreatedAt: moment("2026-11-02T09:14:03.120441Z"), UpdatedAt: moment("2026-11-20T16:40:55.002318Z"),
	}
}

func examplePausedRecord() jobs.Record {
	job := exampleRecord(exampleJobInput)
	paused, until := moment("2026-11-28T18:00:00.5Z"), moment("2026-12-01T09:00:00Z")
	job.State, job.PausedAt, job.PausedUntil, job.PauseNote = domain.JobPaused, &paused, &until, "the warehouse moves"
	job.PausedBy = "key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"
	job.NextScheduledFor, job.NextRunAt, job.LastRun = nil, nil, nil
	return job
}

func exampleSkippedSlot() history.Explanation {
	run, first, last := exampleListedRun(), moment("2026-11-29T11:00:00Z"), moment("2026-11-30T11:00:00Z")
	ended, previous, next, two := moment("2026-12-01T09:00:00.2Z"), moment("2026-11-28T11:00:00Z"), last, 2
	run.ID, run.Status, run.Reason, run.ScheduledFor = uuid.MustParse("019ad8f2-4dc8-7e19-b0a6-3f7d215c9e80"),
		domain.StatusSkipped, new(domain.ReasonPaused), last
	run.Skipped = &runs.SkippedRange{First: first, Last: last, Count: &two}
	run.DueAt, run.CreatedAt, run.FinishedAt = last, ended, &ended
	run.Attempt, run.HTTPStatus, run.Replica, run.ClaimedAt, run.StartedAt = 0, nil, nil, nil, nil
	run.Attempts = []runs.Attempt{}
	return history.Explanation{
		At: first, Slot: &first, Version: new(int32(7)), Outcome: history.OutcomeSkipped, Run: &run, PreviousSlot: &previous,
		NextSlot: &next,
		Text: "The slot was skipped because it passed while the job was paused from 2026-11-28T18:00:00.5Z to " +
			"2026-12-01T09:00:00.2Z (the warehouse moves). It is one of 2 from 2026-11-29T11:00:00Z to 2026-11-30T11:00:00Z.",
		Pause: &history.Pause{Since: moment("2026-11-28T18:00:00.5Z"), Ended: &ended, Note: "the warehouse moves"},
	}
}

func moment(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

var exampleVersion = jobs.WholeVersion{
	Version: jobs.Version{
		Number: 7, From: moment("2026-11-28T17:30:00.25Z"), State: domain.JobActive,
		By: new("key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11)"), Changed: []string{"schedule.cron"},
	},
	Definition: json.RawMessage(`{"name":"daily-invoice-gen","schedule":{"cron":"0 3 * * *"},` +
		`"target":{"url":"https://billing.internal/invoices"}}`),
	Differences: []audit.Difference{{
		Field: "schedule.cron", Before: json.RawMessage(`"0 4 * * *"`), After: json.RawMessage(`"0 3 * * *"`),
	}},
}

// exampleOf returns the answer to an error.
func exampleOf(err error) *problem.Problem { return api.ProblemOf(context.Background(), err, "") }
