package jobspec

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"punctual/scheduler/delivery/wire"
)

// Notify says who gets a notice of which events of a job, and in which form.
type Notify struct {
	On       []Event `json:"on" enum:"failing,dead,missed,late,stale,overlapping,dropped,recovered,started,succeeded" doc:"The events to send notices about. failing: the first failed attempt of a healthy job; dead: a run died; missed: slots were missed and will not run; late: a run was first claimed after the job's tolerance; stale: no success within expect_success_within; overlapping: for an hour most slots did not run to their end, because of the run before; dropped: a run of an event, a chain or a caller was skipped, because another one was active or max_pending_runs waited; recovered: the first success of a job that was failing, dead or stale. Only with format json, in batches: started: a run was claimed, and is about to be sent; succeeded: a run has succeeded."`
	Format   Format  `json:"format,omitempty" minLength:"1" enum:"json,slack,pagerduty,alertmanager,teams,email,template" doc:"Form of the request. json: all details; slack: an incoming webhook; pagerduty: Events API v2, with one dedup_key for each job; alertmanager: its API v2, with one alert for each job and kind of trouble; teams: an incoming webhook of a Teams workflow; email: plain text; template: the text of template." example:"slack"`
	URL      string  `json:"url,omitempty" minLength:"1" doc:"Absolute http or https URL that receives a POST. For alertmanager, its base URL or /api/v2/alerts. Absent: with pagerduty, https://events.pagerduty.com/v2/enqueue." example:"https://hooks.slack.com/services/T000/B000/XXXX"`
	To       string  `json:"to,omitempty" minLength:"1" doc:"With email: the address, of a domain that the deployment allows. Absent: none." example:"ops@example.com"`
	Template string  `json:"template,omitempty" minLength:"1" maxLength:"10000" doc:"With template: the text to send. {{headline}}, {{state}} (firing, resolved or passing), {{kind}}, {{key}}, {{tenant}}, {{since}}, {{cause}}, {{events}}, {{jobs}} (names), {{job_count}}, {{host}}, {{reason}}, {{error}}, {{runbook}}, {{labels}} and {{link}} are filled in, empty if not known. A JSON object or array is sent as application/json, with the values escaped; any other text as text/plain. Absent: none." example:"{\"text\": \"{{headline}} {{link}}\"}"`
	Secret   string  `json:"secret,omitempty" minLength:"1" doc:"With pagerduty, which requires it: name of the secret (PUT /v1/secrets/{secret}) with the routing key. Absent: none." example:"pagerduty-key"`
}

// Format is the form of a notice.
type Format string

// The formats of notices.
const (
	FormatJSON         Format = "json" // the default
	FormatSlack        Format = "slack"
	FormatPagerDuty    Format = "pagerduty"
	FormatAlertmanager Format = "alertmanager"
	FormatTeams        Format = "teams"
	FormatEmail        Format = "email"
	FormatTemplate     Format = "template"
)

// Formats are all formats of notices.
var Formats = []Format{
	FormatJSON, FormatSlack, FormatPagerDuty, FormatAlertmanager, FormatTeams, FormatEmail,
	FormatTemplate,
}

const (
	pagerDutyURL     = "https://events.pagerduty.com/v2/enqueue"
	alertmanagerPath = "/api/v2/alerts"
)

// Event is something about a job that a notice can tell of.
type Event string

// The events.
const (
	EventFailing     Event = "failing"     // an attempt failed, the first one since the job was well
	EventDead        Event = "dead"        // a run died: it is in the dead-letter list
	EventMissed      Event = "missed"      // slots were missed and will not run
	EventLate        Event = "late"        // a run was first claimed after the job's tolerance
	EventStale       Event = "stale"       // no success within expect_success_within
	EventOverlapping Event = "overlapping" // most slots are skipped, as the run before has not ended
	EventDropped     Event = "dropped"     // a run that was asked for is skipped, as others were active or too many waited
	EventRecovered   Event = "recovered"   // a run succeeded, the first since the job was failing, dead or stale
)

// The events of the lifecycle of runs. They are told of each run, in batches, and only in format json.
const (
	EventStarted   Event = "started"   // a run was claimed for its first attempt
	EventSucceeded Event = "succeeded" // a run has succeeded
)

// Lifecycle are all events of the lifecycle of runs.
var Lifecycle = []Event{EventStarted, EventSucceeded}

// AskedEvents are all events that an entry can ask for.
var AskedEvents = slices.Concat(Events, Lifecycle)

// Events are all events about the trouble of jobs that an entry can ask for.
var Events = []Event{
	EventFailing, EventDead, EventMissed, EventLate, EventStale, EventOverlapping, EventDropped,
	EventRecovered,
}

// The events that no entry can ask for.
const (
	EventOverlapOver Event = "overlap_over" // the end of EventOverlapping, for those who asked for that
	EventTest        Event = "test"         // a test notice
	EventApproval    Event = "approval"     // a step of a workflow waits for approval
	// EventEnded tells those who know of trouble that nobody will be told of its end: DigestEvent.Cause says why.
	EventEnded Event = "ended"
)

// Trouble reports whether the event says that a job is not well.
func (e Event) Trouble() bool {
	return e == EventFailing || e == EventDead || e == EventStale || e == EventOverlapping
}

// EndsTrouble reports whether the event closes what an event of trouble opened.
func (e Event) EndsTrouble() bool {
	return e == EventRecovered || e == EventEnded || e == EventOverlapOver
}

// Why the end of trouble will not be told.
const (
	EndJobDeleted    = "job_deleted"
	EndJobPaused     = "job_paused"     // until a caller resumes it
	EndNotAsked      = "not_asked"      // the job no longer tells the recipient of recoveries
	EndTenantDeleted = "tenant_deleted" // and its jobs with it
)

// Asks reports whether one of the entries asks for one of the events.
func Asks(list []Notify, events ...Event) bool {
	return slices.ContainsFunc(list, func(n Notify) bool {
		return slices.ContainsFunc(events, func(e Event) bool { return slices.Contains(n.On, e) })
	})
}

// Recipient is who gets a notice, without the events. Entries with the same recipient share one notice.
type Recipient struct {
	Format   Format
	URL      string
	Secret   string
	Template string
}

// Words names the recipient for people.
func (r Recipient) Words() string {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil:
		return string(r.Format)
	case r.Format == FormatEmail:
		return u.Opaque
	case r.Format == FormatPagerDuty:
		return "PagerDuty"
	}
	name := map[Format]string{
		FormatSlack: "Slack", FormatTeams: "Microsoft Teams", FormatAlertmanager: "Alertmanager",
	}[r.Format]
	return strings.TrimSpace(name + " " + u.Host)
}

// Asks reports whether one of the recipient's entries asks for an event.
func (r Recipient) Asks(list []Notify, e Event) bool {
	return slices.ContainsFunc(list, func(n Notify) bool { return n.Recipient() == r && slices.Contains(n.On, e) })
}

// Recipient returns the recipient of an entry, with defaults filled in.
func (n Notify) Recipient() Recipient {
	r := Recipient{Format: n.Format, URL: n.URL, Secret: n.Secret, Template: n.Template}
	switch {
	case r.Format == "":
		r.Format = FormatJSON
	case r.Format == FormatEmail:
		r.URL = MailScheme + n.To
	case r.Format == FormatPagerDuty && r.URL == "":
		r.URL = pagerDutyURL
	case r.Format == FormatAlertmanager && !strings.HasSuffix(strings.TrimRight(r.URL, "/"), alertmanagerPath):
		r.URL = strings.TrimRight(r.URL, "/") + alertmanagerPath
	}
	return r
}

// ValidateNotify returns what is wrong with a list of entries; field is its name.
func ValidateNotify(field string, list []Notify) []Problem {
	var c checker
	c.notify(field, list)
	return c.problems
}

func (c *checker) notify(field string, list []Notify) {
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if len(n.On) == 0 {
			c.add(at+".on", "is required: some of %s", strings.Join(texts(AskedEvents), ", "))
		}
		for k, event := range n.On {
			field := fmt.Sprintf("%s.on[%d]", at, k)
			switch {
			case !slices.Contains(AskedEvents, event):
				notOneOf(c, field, event, AskedEvents)
			case slices.Index(n.On, event) < k:
				c.add(field, "%q appears twice", event)
			case slices.Contains(Lifecycle, event) && n.Recipient().Format != FormatJSON:
				c.add(field, "%q is sent for each run, which only format json can do: give format json a URL of its own", event)
			}
		}
		oneOf(c, at+".format", n.Format, Formats...)
	}
	c.notifyTo(field, list)
}

// notifyTo checks the recipients of a list.
func (c *checker) notifyTo(field string, list []Notify) {
	c.atMost(field, len(list), "entries", MaxNotify)
	for i, n := range list {
		c.recipient(fmt.Sprintf("%s[%d]", field, i), n)
	}
}

func (c *checker) recipient(at string, n Notify) {
	if c.ofFormat(at+".to", n, FormatEmail, n.To, "an address, such as ops@example.com") {
		c.check(at+".to", wire.CheckMailbox(n.To))
	}
	if n.Format == FormatEmail && n.URL != "" {
		c.add(at+".url", "format email does not have it; leave it out")
	}
	switch {
	case n.Format == FormatEmail:
	case n.URL != "":
		if u, err := wire.CheckURL(n.URL); err != nil {
			c.add(at+".url", "%v", err)
		} else if n.Format == FormatAlertmanager && u.RawQuery != "" {
			c.add(at+".url", "must not have a query, as %s is added to it", alertmanagerPath)
		}
	case n.Format != FormatPagerDuty:
		c.add(at+".url", "is required: an absolute http or https URL")
	}
	c.template(at+".template", n)
	c.secretName(at+".secret", n.Secret)
	c.ofFormat(at+".secret", n, FormatPagerDuty, n.Secret, "the name of the secret that holds the routing key")
}

// ofFormat checks a field that one format requires and no other has. what says what it holds. It reports whether there
// is a value to check.
func (c *checker) ofFormat(field string, n Notify, f Format, value, what string) bool {
	switch {
	case n.Format != f && value != "":
		c.add(field, "only format %s has it; leave it out", f)
	case n.Format == f && value == "":
		c.add(field, "is required with format %s: %s", f, what)
	}
	return n.Format == f && value != ""
}

// MailScheme begins the URL of a recipient of e-mail.
const MailScheme = "mailto:"
