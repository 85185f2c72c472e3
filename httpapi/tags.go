package httpapi

// The groups of operations, in the order of the documentation.
const (
	tagJobs        = "jobs"
	tagRuns        = "runs"
	tagCallbacks   = "callbacks"
	tagDeadLetters = "dead letters"
	tagOperations  = "operations"
	tagSchedules   = "schedules"
	tagEvents      = "events"
	tagTenants     = "tenants and keys"
	tagAudit       = "audit"
	tagSecrets     = "secrets"
	tagFleet       = "queues and replicas"
	tagOverview    = "overview"
)
