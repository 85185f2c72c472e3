package domain

// JobState is where a job is in its life.
type JobState string

// The states of a job.
const (
	JobActive    JobState = "active"
	JobPaused    JobState = "paused"
	JobCompleted JobState = "completed" // no slot is left
	JobDeleted   JobState = "deleted"   // kept for its history
)

// Stored is the state as the column jobs.state holds it. Only the job's schedule says that the job is completed.
func (s JobState) Stored() string {
	if s == JobCompleted {
		return string(JobActive)
	}
	return string(s)
}

// HoldsName reports whether no other job can have the name of a job in this state. The claim of a last slot leaves the
// job its name all the same, until another job wants it.
func (s JobState) HoldsName() bool { return s == JobActive || s == JobPaused }
