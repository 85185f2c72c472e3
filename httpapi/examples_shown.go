package httpapi

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/body"
	"punctual/store/audit"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/limits"
	"punctual/store/secrets"
	"punctual/store/tenants"
)

// bodyExamples are the bodies of requests, by operation.
var bodyExamples = map[string]json.RawMessage{
	"create-job": exampleJobInput, "put-job": exampleWorkflow, "patch-job": examplePatch, "create-jobs": exampleBatch,
	"pause-job": examplePause, "resume-job": exampleResume, "trigger-job": exampleTrigger,
	"trigger-batch": exampleTriggerBatch, "move-dated-run": json.RawMessage(`{"delay":"2h"}`),
	"backfill-job": exampleBackfill,
	"pause-jobs":   examplePauseJobs, "resume-jobs": exampleResumeJobs, "delete-jobs": exampleDeleteJobs,
	"rerun-run": exampleRerunInput, "heartbeat-run": exampleHeartbeat, "complete-run": exampleCompletion,
	"approve-run": exampleApproveNote, "reject-run": exampleRejectNote,
	"decide-approval": json.RawMessage(`{"decision":"reject","note":"wrong day"}`),
	"fail-run":        exampleFailure, "replay-dead-letters": exampleBulk, "resolve-dead-letters": exampleBulk,
	"replay-dead-letter": exampleReplayNote, "resolve-dead-letter": exampleResolveNote,
	"preview-schedule": examplePreview, "test-notify": exampleNotifyTest, "create-api-key": exampleKeyInput,
	"create-tenant": exampleTenantInput, "patch-tenant": exampleTenantPatch, "patch-own-tenant": exampleTenantNotify,
	"put-secret": exampleSecretInput, "put-grant": json.RawMessage(`{"role":"shop"}`),
	"put-limit": json.RawMessage(`{"max_running":1,"max_starts_per_second":5}`),
	"freeze":    exampleFreeze, "unfreeze": exampleUnfreeze,
	"reset-breakers": exampleBreakersReset, "emit-event": exampleEmitInput,
}

// answerExamples are the answers of operations that succeed. Where statuses have different answers, their names have
// the status.
var answerExamples = map[string]any{
	"put-job": exampleWithSteps, "patch-job": exampleJob, "get-job": exampleJob, "pause-job": examplePausedJob,
	"resume-job": exampleJob, "list-jobs": List[ListedJob]{Data: []ListedJob{{Job: exampleJob, Recent: exampleRecent}}},
	"get-run": exampleWholeRun(), "complete-run": exampleCompletedRun, "fail-run": exampleRetryingRun(),
	"approve-run": exampleApproved(), "reject-run": exampleRejected(),
	"get-approval": exampleApproval, "decide-approval": exampleDecided(),
	"heartbeat-run": exampleBeat, "get-run-progress": exampleProgress,
	"get-step-result": StepResult{Result: json.RawMessage(`{"documents":41877}`)},
	"list-runs":       exampleRuns, "list-job-runs": exampleRuns,
	"list-run-changes":  exampleRunChanges(),
	"list-dead-letters": exampleDeadLetters, "resolve-dead-letter": exampleResolvedLetter(),
	"list-dead-letter-groups": exampleGroups,
	"list-operations":         List[letters.Operation]{Data: []letters.Operation{exampleOperation}},
	"get-operation":           exampleReadOperation(), "cancel-operation": exampleEndedOperation(),
	"list-secrets": List[secrets.Secret]{Data: []secrets.Secret{exampleSecret}},
	"get-secret":   exampleSecret, "put-secret": exampleSecret,
	"list-limits": LimitList{Data: []limits.Limit{exampleLimit}}, "get-limit": exampleLimit, "put-limit": exampleLimit,
	"list-signing-secrets":  SigningSecretList{Data: []secrets.SigningSecret{exampleSigningSecret}},
	"create-signing-secret": exampleNewSigningSecret,
	"preview-schedule":      examplePreviewAnswer, "list-upcoming": exampleUpcoming, "explain-job": exampleSkippedSlot(),
	"get-forecast":   exampleForecast,
	"emit-event 200": WouldEmit{Runs: []string{"book-payment"}, Paused: []string{}, Made: 1, Unmatched: 2},
	"emit-event":     exampleEmitted, "get-event": exampleEventDetails(),
	"list-events":      List[Event]{Data: []Event{exampleEvent()}},
	"list-event-names": List[EventName]{Data: []EventName{exampleEventName}},
	"create-api-key":   exampleNewKey, "list-api-keys": exampleKeys, "get-api-key": exampleKey,
	"create-tenant": exampleTenant, "list-tenants": exampleTenants,
	"list-grants": List[tenants.Grant]{Data: []tenants.Grant{exampleGrant}}, "put-grant": exampleGrant,
	"get-tenant": exampleOwn, "get-own-tenant": exampleOwn, "get-caller": exampleCaller,
	"patch-tenant": exampleTenant, "patch-own-tenant": exampleTenant, "test-notify": exampleTested,
	"list-notices": exampleNotices, "get-notice": exampleNotice, "list-audit-log": exampleAudit,
	"list-job-changes": List[audit.JobChange]{Data: []audit.JobChange{exampleJobChange}},
	"list-versions":    List[jobs.Version]{Data: []jobs.Version{exampleVersion.Version}},
	"get-version":      exampleVersion, "restore-version": exampleJob,
	"get-overview": exampleOverview, "get-job-stats": exampleStats, "list-usage": exampleUsage,
	"list-queues": exampleQueues, "list-replicas": exampleReplicas,
	"freeze": exampleFrozen, "unfreeze": FreezeState{}, "get-freeze": exampleFrozen,
	"list-breakers": exampleBreakers, "reset-breakers": BreakersReset{Matched: 3},
	"create-job": exampleJob, "create-jobs": exampleBatchAnswer, "trigger-job": examplePendingRun,
	"trigger-batch":   TriggerBatchAnswer{Data: []Dated{exampleDated}},
	"list-dated-runs": List[DatedRun]{Data: []DatedRun{exampleDatedRun}}, "get-dated-run": exampleDatedRun,
	"move-dated-run": Dated{Key: "order-42", Run: exampleDatedID, DueAt: exampleDated.DueAt, Replaced: true},
	"cancel-run":     exampleCancelledRun(), "rerun-run 200": exampleRerunPlan, "rerun-run": exampleManualRerun(),
	"replay-dead-letter":      exampleReplayingRun(),
	"replay-dead-letters 200": Matched{Matched: 1204}, "replay-dead-letters": exampleOperation,
	"resolve-dead-letters 200": Matched{Matched: 1204}, "resolve-dead-letters": exampleOperation,
	"backfill-job 200": exampleCounted, "backfill-job": exampleRunningBackfill(),
	"pause-jobs 200": Matched{Matched: 500}, "pause-jobs": exampleJobsOperation(jobs.PauseMany),
	"resume-jobs 200": Matched{Matched: 500}, "resume-jobs": exampleJobsOperation(jobs.ResumeMany),
	"delete-jobs 200": Matched{Matched: 500}, "delete-jobs": exampleJobsOperation(jobs.DeleteMany),
}

// showExamples adds the examples to a description.
func showExamples(api *huma.OpenAPI) {
	for op := range operations(api) {
		if op.RequestBody != nil {
			for _, content := range op.RequestBody.Content {
				content.Example = bodyExamples[op.OperationID]
			}
		}
		for status, response := range op.Responses {
			example := answerExamples[op.OperationID+" "+status]
			if example == nil {
				example = answerExamples[op.OperationID]
			}
			if status[0] == '2' && example != nil {
				response.Content[body.MediaJSON].Example = example
			}
		}
	}
}
