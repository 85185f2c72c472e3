package httpapi

// Bodies that create jobs.
const (
	exampleJobInput = `{"name":"daily-invoice-gen","labels":{"team":"billing"},` +
		`"schedule":{"cron":"0 3 * * *","timezone":"America/Los_Angeles"},` +
		`"concurrency_policy":"forbid",` +
		`"target":{"url":"https://billing.internal/invoices","body":{"range":"yesterday"}},` +
		`"timeout":"10m","retry":{"max_attempts":3},` +
		`"notify":[{"on":["dead","recovered"],"url":"https://pager.internal/hook"}]}`
	exampleWorkflow = `{"name":"daily-invoice-gen","labels":{"team":"billing"},` +
		`"schedule":{"cron":"0 3 * * *","timezone":"America/Los_Angeles"},"retry":{"max_attempts":3},"max_duration":"2h",` +
		`"steps":[{"name":"collect","target":{"url":"https://billing.internal/collect","body":{"range":"yesterday"}}},` +
		`{"name":"invoices","depends_on":["collect"],"target":{"url":"https://billing.internal/invoices"},"timeout":"10m"},` +
		`{"name":"report","depends_on":["invoices"],"when":"ended","target":{"url":"https://mail.internal/send"}}]}`
	exampleBatch = `{"jobs":[{"name":"reminder-4711","schedule":{"at":"2026-12-01T09:00:00+01:00"},` +
		`"target":{"url":"https://mail.internal/send"}}],"on_conflict":"skip"}`
)

const exampleLetters = `{"filter":{"reason":"http_5xx","from":"2026-12-01T00:00:00Z",` +
	`"label":{"team":"billing"}},"latest_per_job":true,"max_per_second":10,"note":"the invoice service was down"}`

// shownAs names the form that examples show of an answer with several forms, by schema.
var shownAs = map[string]string{"ListedRun": "Run", "Triggered": "Run"}

// Parts of the examples below.
const (
	exampleChange = `{"resource_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11","job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11",
		"before":{"version":7,"state":"active"},"after":{"version":8,"state":"paused","note":"the warehouse moves",
		"paused_until":"2026-12-03T09:00:00Z"}}`
	exampleNamed   = `{"jobs":["019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"]}`
	examplePending = `{"id":"019ada4e-9c3b-7d52-a1c8-5be0f7d96a34","trigger":"manual","status":"pending","attempt":0,
		"due_at":"2026-12-01T15:20:11.803Z","created_at":"2026-12-01T15:20:11.803Z","claimed_at":null,"started_at":null,
		"finished_at":null,"http_status":null,"replica":null}`
	exampleStep = `{"id":"019ad964-3b80-8f20-b2c4-0a9d6e5f1b73","job":"nightly-etl","step":"approve","trigger":"step",
		"workflow_run":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968","http_status":null,"max_attempts":1}`
	exampleAttempt = `{"number":1,"started_at":"2026-12-01T11:00:00.425Z","finished_at":"2026-12-01T11:00:02.044Z",
		"replica":"4f0c7d4e-51a2-4c0e-9b0e-6f1f3f7c2a10",`
	wrongDay      = `rejected by key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11) at 2026-12-01T11:00:02Z: wrong day`
	exampleOfJobs = `{"matched":500,"done":200,"max_per_second":null,"note":"the warehouse moves",
		"request":{"labels":{"team":"billing"},"reason":null,"label":null,"latest_per_job":null}}`
	exampleFrozen = `{"tenant":{"scope":"tenant","since":"2026-12-01T11:00:00.204Z","note":"the warehouse moves",
		"by":"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)","reason":"asked"}}`
)

// typical says how examples differ from what the tags of their fields say, as a merge patch, by schema.
var typical = map[string]string{
	"Run": `{"id":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968","due_at":"2026-12-01T11:00:00.421Z","triggered_by":null,
		"created_at":"2026-12-01T11:00:00.423Z","claimed_at":"2026-12-01T11:00:00.423Z",
		"started_at":"2026-12-01T11:00:00.425Z","finished_at":"2026-12-01T11:00:02.044Z",
		"replica":"4f0c7d4e-51a2-4c0e-9b0e-6f1f3f7c2a10"}`,
	"Operation": `{"failed":0,"note":"the invoice service was down","created_at":"2026-12-01T15:22:56.196Z",
		"request":{"reason":"http_5xx","label":{"team":"billing"},"latest_per_job":true}}`,
	"DeadLetter":      `{"died_at":"2026-12-01T11:03:02.774Z","error":"the target answered 503: try again later"}`,
	"DeadLetterGroup": `{"oldest_slot":"2026-11-30T11:00:00Z","error":"the target answered 503: try again later"}`,
	"RerunPlan":       `{"refused":[]}`,
	"EventName":       `{"last_id":"019ada6b-9c80-7b21-8f6e-1d2c3b4a5968","last_at":"2026-12-01T15:20:11.803Z"}`,
	"Breaker":         `{"next_probe_at":"2026-12-01T11:04:40.118Z","waiting_since":"2026-12-01T11:00:42.007Z"}`,
	"FanOut":          `{"ended_at":"2026-12-01T11:00:00.038Z"}`,
	"JobChange":       exampleChange,
	"AuditEntry":      exampleChange,
	"Version":         `{"restored_version":null}`,
	"WholeVersion": `{"restored_version":null,"definition":{"name":"daily-invoice-gen","schedule":{"cron":"0 3 * * *"},
		"target":{"url":"https://billing.internal/invoices"}},
		"differences":[{"field":"schedule.cron","before":"0 4 * * *","after":"0 3 * * *"}]}`,
	"UpcomingSlot": `{"scheduled_for":"2026-10-25T02:00:00Z","next_run_at":"2026-10-25T02:00:00.421Z"}`,
	"Forecast": `{"to":"2026-12-01T13:00:00Z","jobs":60113,"total":60400,"slots":[60112,288],"starts":[60112,288],
		"spread":[{"jitter":null,"at":"2026-12-01T11:00:00Z","starts":60112}]}`,
	"LinkedStep": `{"since":"2026-12-01T02:04:10.044Z","until":"2026-12-02T02:04:10.051Z"}`,
	"Progress":   `{"progress":{"rows":41200},"recorded_at":"2026-12-01T11:04:12.004Z"}`,
	"StepResult": `{"result":{"documents":41877}}`,
	"ListedJob": `{"recent":{"duration_p95_s":4.208,"runs":[{"id":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968",
		"status":"succeeded","scheduled_for":"2026-12-01T11:00:00Z"}]}}`,
	"JobStats": `{"from":"2026-11-30T11:00:00Z","runs":25,"succeeded":24,"dead":1,"skipped":0,"unended":0,
		"success_rate":0.96,"duration":{"runs":25},"lateness":{"runs":24,"p50_s":0.002,"p95_s":0.011,"max_s":0.024}}`,
	"Usage":           `{"job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}`,
	"Queue":           `{"oldest_due":"2026-12-01T11:00:00Z","waits_for":null}`,
	"Replica":         `{"queues":{"default":500,"critical":100}}`,
	"Notice":          exampleNamed,
	"Detail":          exampleNamed,
	"NamedJob":        `{"id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"}`,
	"Notices":         `{"waiting":[]}`,
	"Key":             `{"expires_at":"2026-12-31T11:00:00Z"}`,
	"NewKey":          `{"expires_at":"2026-12-31T11:00:00Z"}`,
	"Tenant":          `{"notify":[]}`,
	"TenantWithUsage": `{"notify":[]}`,
}

// Answers, as they differ from the typical one.
const (
	exampleWholeRun = `{"attempt":2,"result":{"invoices":412},"trace_id":"759100246881db92279b68d271a307bc",
		"log_url":"https://logs.example.com/search?q=019ad964-3b80-8b21-8f6e-1d2c3b4a5968",
		"attempts":[{"number":1,"started_at":"2026-12-01T11:00:00.425Z","finished_at":"2026-12-01T11:00:00.508Z",
			"replica":"4f0c7d4e-51a2-4c0e-9b0e-6f1f3f7c2a10",
			"outcome":"failed","reason":"http_5xx","http_status":503,"error":"the target answered 503: try again later",
			"response":"try again later","headers":{"content-type":"text/plain","retry-after":"1"}},
			{"number":2,"started_at":"2026-12-01T11:00:01.731Z","finished_at":"2026-12-01T11:00:02.044Z",
			"replica":"4f0c7d4e-51a2-4c0e-9b0e-6f1f3f7c2a10","outcome":"succeeded","http_status":200}],
		"request":{"method":"POST","url":"https://billing.internal/invoices","body":{"range":"yesterday"},
			"headers":{"Authorization":"***","Content-Type":"application/json",
			"Idempotency-Key":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11:1796122800","Punctual-Attempt":"2",
			"Punctual-Fencing-Token":"90144",
			"Punctual-Job":"daily-invoice-gen","Punctual-Run":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968",
			"Punctual-Scheduled-For":"2026-12-01T11:00:00Z","Punctual-Trigger":"schedule",
			"Webhook-Id":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968","Webhook-Signature":"***","Webhook-Timestamp":"1796122801",
			"Traceparent":"00-759100246881db92279b68d271a307bc-00f067aa0ba902b7-01"}}}`
	exampleCompleted = `{"result":{"documents":41877},
		"attempts":[` + exampleAttempt + `"outcome":"succeeded","http_status":200}]}`
	exampleFailed = `{"status":"retrying","reason":"failed","error":"the ledger is locked","http_status":null,
		"accepted_at":"2026-12-01T11:00:00.512Z","finished_at":null,"next_attempt_at":"2026-12-01T11:00:32.551Z",
		"attempts":[` + exampleAttempt + `"outcome":"failed","reason":"failed","error":"the ledger is locked"}]}`
	exampleApproved = `{"result":{"decision":"approved","note":"the numbers are right",
		"by":"key deploy (019a3c5e-0000-7c3e-9a44-0c6d5f0e8b11)","at":"2026-12-01T11:00:02.044Z"},
		"attempts":[` + exampleAttempt + `"outcome":"succeeded"}]}`
	exampleRejected = `{"status":"dead","reason":"rejected","error":"` + wrongDay + `",
		"attempts":[` + exampleAttempt + `"outcome":"failed","reason":"rejected","error":"` + wrongDay + `"}]}`
	exampleBackfill = `{"kind":"backfill","job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11","matched":31,
		"done":4,"max_per_second":10,
		"note":"invoices of November with the new template","waiting_for_run":"019ad964-3b80-8b21-8f6e-1d2c3b4a5968",
		"request":{"labels":null,"job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11","job_version":7,"rerun":false,
		"concurrency":"one_at_a_time","from":"2026-11-01T07:00:00Z","to":"2026-12-01T08:00:00Z"}}`
	exampleExplained = `{"slot":"2026-12-01T11:00:00Z","previous_slot":"2026-11-30T11:00:00Z",
		"next_slot":"2026-12-02T11:00:00Z","outcome":"skipped","run":{"id":"019ad8f2-4dc8-7e19-b0a6-3f7d215c9e80",
		"job_id":"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11","job":"daily-invoice-gen","tenant":"default","queue":"default",
		"trigger":"schedule","scheduled_for":"2026-12-01T11:00:00Z","status":"skipped","reason":"paused",
		"max_attempts":3,"job_version":7,"due_at":"2026-12-01T11:00:00Z","created_at":"2026-12-01T12:00:00.2Z",
		"finished_at":"2026-12-01T12:00:00.2Z","attempts":[],
		"skipped":{"first":"2026-11-29T11:00:00Z","last":"2026-12-01T11:00:00Z","count":3}},
		"explanation":"The slot was skipped because it passed while ` +
		`the job was paused from 2026-11-28T18:00:00.5Z to 2026-12-01T12:00:00.2Z (the warehouse moves). ` +
		`It is one of 3 from 2026-11-29T11:00:00Z to 2026-12-01T11:00:00Z.",
		"pause":{"since":"2026-11-28T18:00:00.5Z","ended":"2026-12-01T12:00:00.2Z","note":"the warehouse moves"}}`
	examplePreview = `{"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},"words":"daily 02:30",
		"warnings":[],"slots":[{"scheduled_for":"2026-03-28T01:30:00Z","local":"2026-03-28T02:30:00+01:00"},
		{"scheduled_for":"2026-03-29T01:30:00Z","local":"2026-03-29T03:30:00+02:00",
		"note":"02:30 does not exist on this day; moved to 03:30"}]}`
)
