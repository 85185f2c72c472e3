package jobspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// DefaultApprovalExpiry is the expires_after of an approval that sets none, unless its workflow has less time.
var DefaultApprovalExpiry = mustDuration("24h")

// Approval makes a step wait for a person in place of sending a request.
type Approval struct {
	Notify       []ApprovalNotify `json:"notify,omitempty" maxItems:"10" doc:"Recipients of the notice that the step waits, with a link to decide. Absent: none; the job's notify is not used."`
	ExpiresAfter Duration         `json:"expires_after,omitzero" doc:"How long the step waits before it is dead, approval_expired; at most the job's max_duration. Absent: 24h, or max_duration if that is shorter." example:"24h"`
}

// ApprovalNotify says who is told that a step waits for approval, and in which form.
type ApprovalNotify struct {
	Format   Format `json:"format,omitempty" minLength:"1" enum:"json,slack,teams,email,template" doc:"Form of the request, as in a job's notify. Absent: json." example:"slack"`
	URL      string `json:"url,omitempty" minLength:"1" doc:"Absolute http or https URL that receives a POST. Absent: none, with email." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
	To       string `json:"to,omitempty" minLength:"1" doc:"With email: the address, of a domain that the deployment allows. Absent: none." example:"ops@example.com"`
	Template string `json:"template,omitempty" minLength:"1" maxLength:"10000" doc:"With template: the text to send, as in a job's notify. Absent: none." example:"{\"text\": \"{{headline}} {{link}}\"}"`
}

// Entries returns the recipients in the form of a job's notify.
func (a Approval) Entries() []Notify {
	list := make([]Notify, len(a.Notify))
	for i, n := range a.Notify {
		list[i] = Notify{On: []Event{EventApproval}, Format: n.Format, URL: n.URL, To: n.To, Template: n.Template}
	}
	return list
}

// Expiry returns how long the step waits in a workflow with defaults filled in.
func (a Approval) Expiry(whole Definition) Duration {
	if !a.ExpiresAfter.IsZero() {
		return a.ExpiresAfter
	}
	if whole.MaxDuration.Value() < DefaultApprovalExpiry.Value() {
		return whole.MaxDuration
	}
	return DefaultApprovalExpiry
}

// approval checks a step that waits for approval.
func (c *checker) approval(at string, s Step, whole Definition) {
	for f, v := range reflect.ValueOf(s).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !v.IsZero() && !slices.Contains([]string{"name", "depends_on", "when", "approval"}, name) {
			c.add(at+"."+name, "a step with approval sends nothing, and has none; leave it out")
		}
	}
	c.duration(at+".approval.expires_after", s.Approval.ExpiresAfter, time.Second,
		whole.WithDefaults().MaxDuration.Value())
	list := s.Approval.Entries()
	for i, n := range list {
		if n.Format == FormatPagerDuty || n.Format == FormatAlertmanager {
			c.add(fmt.Sprintf("%s.approval.notify[%d].format", at, i),
				"%q is for failures, and an approval is not one", n.Format)
			list[i].Format = FormatJSON // so that nothing else is said of it
			continue
		}
		oneOf(c, fmt.Sprintf("%s.approval.notify[%d].format", at, i), n.Format, Formats...)
	}
	c.notifyTo(at+".approval.notify", list)
}
