package audit

import "strings"

// Action is the action of an entry of the audit log: the kind of resource, a dot, a verb. The list is closed. A new
// action must be added to the constraint of punctual.audit_log as well.
type Action string

// The actions.
const (
	JobCreate           Action = "job.create"
	JobUpdate           Action = "job.update" // also a rename
	JobPause            Action = "job.pause"
	JobResume           Action = "job.resume"
	JobDelete           Action = "job.delete"
	JobRestore          Action = "job.restore" // to the definition of a former version
	JobBackfill         Action = "job.backfill"
	RunTrigger          Action = "run.trigger"
	RunCancel           Action = "run.cancel"
	RunMove             Action = "run.move"    // a dated run, to another instant
	RunApprove          Action = "run.approve" // of a step that waits for approval
	RunReject           Action = "run.reject"
	DeadLetterReplay    Action = "dead_letter.replay"
	DeadLetterResolve   Action = "dead_letter.resolve"
	OperationCreate     Action = "operation.create"
	OperationCancel     Action = "operation.cancel"
	KeyCreate           Action = "api_key.create"
	KeyRevoke           Action = "api_key.revoke"
	TenantCreate        Action = "tenant.create"
	TenantUpdate        Action = "tenant.update"
	TenantDelete        Action = "tenant.delete"
	SecretPut           Action = "secret.put"
	SecretDelete        Action = "secret.delete"
	SecretRotate        Action = "secret.rotate"
	SigningSecretCreate Action = "signing_secret.create"
	SigningSecretDelete Action = "signing_secret.delete"
	LimitPut            Action = "limit.put"
	LimitDelete         Action = "limit.delete"
	DeploymentFreeze    Action = "deployment.freeze"
	DeploymentUnfreeze  Action = "deployment.unfreeze"
	DeploymentAdopt     Action = "deployment.adopt" // runs are now dispatched from another database
	TenantFreeze        Action = "tenant.freeze"
	TenantUnfreeze      Action = "tenant.unfreeze"
	TenantGrant         Action = "tenant.grant" // to a database role, which may make runs in SQL
	TenantRevoke        Action = "tenant.revoke"
	BreakerReset        Action = "breaker.reset"
	AsideRetry          Action = "set_aside.retry" // of what fails by itself
	AsideDrop           Action = "set_aside.drop"
)

// Actions lists every action.
var Actions = []Action{
	JobCreate, JobUpdate, JobPause, JobResume, JobDelete, JobRestore, JobBackfill,
	RunTrigger, RunCancel, RunMove, RunApprove, RunReject,
	DeadLetterReplay, DeadLetterResolve, OperationCreate, OperationCancel,
	KeyCreate, KeyRevoke,
	TenantCreate, TenantUpdate, TenantDelete, SecretPut, SecretDelete, SecretRotate,
	SigningSecretCreate, SigningSecretDelete, LimitPut, LimitDelete,
	DeploymentFreeze, DeploymentUnfreeze, DeploymentAdopt, TenantFreeze, TenantUnfreeze,
	TenantGrant, TenantRevoke, BreakerReset, AsideRetry, AsideDrop,
}

// Resource returns the kind of resource that the action changes.
func (a Action) Resource() string {
	resource, _, _ := strings.Cut(string(a), ".")
	return resource
}
