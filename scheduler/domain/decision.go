package domain

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// approvalJob is the step as a job whose target accepts the work at once and has until expires_after to end it.
func approvalJob(s jobspec.Step, whole *Job) *Job {
	expiry := s.Approval.Expiry(whole.Definition)
	d := jobspec.Definition{
		Name: whole.Name, Labels: whole.Labels, ConcurrencyPolicy: jobspec.PolicyAllow, Queue: whole.Queue,
		Priority: whole.Priority, Completion: jobspec.CompleteAsync, HeartbeatTimeout: expiry, MaxDuration: expiry,
		Retry: jobspec.Retry{MaxAttempts: 1}, Missed: jobspec.Missed{Tolerance: whole.Missed.Tolerance},
		Notify: []jobspec.Notify{},
	}
	return &Job{
		ID: whole.ID, Tenant: whole.Tenant, Version: whole.Version, Definition: d.WithDefaults(),
		Timetable: whole.Timetable, url: noURL, Approval: s.Approval,
	}
}

// SendsNothing reports whether a run of the job makes no request: it is of a workflow, or waits for approval.
func (j *Job) SendsNothing() bool { return j.IsWorkflow() || j.Approval != nil }

// Decision is what a person has decided about a step that waits for approval.
type Decision struct {
	Approved bool
	By       string // who, as the audit log names them
	Note     string // why; empty: it is not said
}

// decided is the result of an approved step.
type decided struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	At       time.Time `json:"at"`
}

// words says what was decided, when and by whom.
func (d decided) words() string {
	text := fmt.Sprintf("%s by %s at %s", d.Decision, d.By, d.At.UTC().Format(time.RFC3339))
	if d.Note != "" {
		text += ": " + d.Note
	}
	return text
}

// JudgeDecision decides how the run of a step ends about which a person has decided.
func JudgeDecision(a Assignment, d Decision, started, now time.Time) Outcome {
	o := Outcome{Assignment: a, Verdict: Succeed, StartedAt: started, FinishedAt: now}
	said := decided{"approved", d.By, d.Note, now.UTC().Truncate(time.Millisecond)}
	if !d.Approved {
		said.Decision = "rejected"
		o.Verdict, o.Reason, o.Error = Bury, ReasonRejected, said.words()
		return o
	}
	o.Result, _ = json.Marshal(said) // never fails
	return o
}

// judgeUnapproved decides how the run of a step ends that no person has decided about by its deadline. That is early
// only if the run was cancelled before it waited.
func judgeUnapproved(a Assignment, started, now time.Time) Outcome {
	o := Outcome{Assignment: a, Verdict: Cancel, StartedAt: started, FinishedAt: now, Reason: ReasonCancelled}
	if longest := a.Job.MaxDuration; !now.Before(started.Add(longest.Value())) {
		o.Verdict, o.Reason = Bury, ReasonApprovalExpired
		o.Error = fmt.Sprintf("it was neither approved nor rejected within its expires_after of %s", longest)
	}
	return o
}

// DecisionOf says in words what was decided about a step that has ended, by its result or its error; empty: nothing.
func DecisionOf(result json.RawMessage, reason Reason, why string) string {
	var d decided
	switch {
	case reason == ReasonRejected:
		return why
	case len(result) > 0 && json.Unmarshal(result, &d) == nil && d.Decision != "":
		return d.words()
	}
	return ""
}

// ApprovalToken returns the token of a link with which a recipient, the nth of an approval's notify, decides about a
// run. It is an HMAC, so no token is stored. It means nothing once the run has ended.
func ApprovalToken(key []byte, run uuid.UUID, nth int) string {
	return approvalTokens.make(key, run, []byte{byte(nth)})
}

// ErrApprovalToken means that the token of a link was not made for the run.
var ErrApprovalToken error = &jobspec.Refusal{
	Code: "run_token", Reason: "the token is not of a link that was sent for this run: open the link as it was sent",
}

// ReadApprovalToken returns which recipient of an approval's notify a token was made for. It returns ErrApprovalToken
// when the token was not made for this run with this key.
func ReadApprovalToken(key []byte, run uuid.UUID, token string) (nth int, err error) {
	raw, ok := approvalTokens.read(key, run, token)
	if !ok {
		return 0, ErrApprovalToken
	}
	return int(raw[0]), nil
}
