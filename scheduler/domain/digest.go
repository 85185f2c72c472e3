package domain

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/jobspec"
)

// Notice returns the job by which a notice about j is sent. It carries j's identity and none of j's settings for its
// own runs: the notice is not a run of j. So it takes no gate, does not expire, and no notice is sent about it in
// turn. to is the URL of a recipient. secret names the secret to add to its body; empty: none.
func (j *Job) Notice(to, secret string) (*Job, error) {
	target, err := recipientURL(to)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: the URL of a notice: %w", j.ID, j.Version, err)
	}
	d := jobspec.Definition{
		Name: j.Name, Queue: j.Queue, Priority: j.Priority, Target: jobspec.Target{URL: to}, Notify: []jobspec.Notify{},
	}
	return &Job{
		ID: j.ID, Tenant: j.Tenant, Version: j.Version, Definition: d.WithDefaults(), Timetable: j.Timetable,
		url: target, header: textproto.MIMEHeader{}, routing: secret,
	}, nil
}

// recipientURL parses the URL of a recipient.
func recipientURL(raw string) (*url.URL, error) {
	address, ok := strings.CutPrefix(raw, jobspec.MailScheme)
	if !ok {
		return wire.CheckURL(raw)
	}
	if err := wire.CheckMailbox(address); err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "mailto", Opaque: address}, nil
}

// Digest is what happened to a job since its last notice.
type Digest struct {
	Job    string    `json:"job"` // name
	JobID  uuid.UUID `json:"job_id"`
	Tenant string    `json:"tenant"`         // name
	Host   string    `json:"host,omitempty"` // that the job calls, with its port
	// Labels are those of the job's labels that the deployment's operator lets notices carry.
	Labels  map[string]string `json:"labels,omitempty"`
	Runbook string            `json:"runbook,omitempty"` // URL
	Link    string            `json:"link,omitempty"`    // to the job's runs
	Events  []DigestEvent     `json:"events"`            // the events that were asked for; the latest comes last
	Former  []Identity        `json:"-"`                 // others under which the recipient knows the job's trouble
}

// Identity is what Alertmanager knows a job by.
type Identity struct {
	Job    string            `json:"job"` // name
	Labels map[string]string `json:"labels,omitempty"`
}

// Identity returns what Alertmanager knows the job by now.
func (d Digest) Identity() Identity { return Identity{d.Job, d.Labels} }

// DigestEvent is an event and how often it happened.
type DigestEvent struct {
	Event   jobspec.Event `json:"event"`
	Count   int           `json:"count"` // of runs; for missed, of recorded skips
	FirstAt time.Time     `json:"first_at"`
	LastAt  time.Time     `json:"last_at"`
	// Since is, for failing and dead, the time of the first failed attempt; for stale, of the last success; for recovered,
	// the start of the trouble that is over.
	Since    *time.Time `json:"since,omitempty"`
	Failures int        `json:"failures,omitempty"` // failed attempts in a row since then
	// Slots is, for missed, how many slots; a skip of more than 1,000 counts as 1,001.
	Slots int `json:"slots,omitempty"`
	// Cause is, for late and missed, the kind of cause that is on record, such as limit; CauseName is the limit or queue.
	// For ended, it is one of the constants that say why.
	Cause     string `json:"cause,omitempty"`
	CauseName string `json:"cause_name,omitempty"`
	// Step is, for approval, the step that waits, and Until the instant until which it waits.
	Step  string      `json:"step,omitempty"`
	Until *time.Time  `json:"until,omitempty"`
	Runs  []DigestRun `json:"runs"` // the newest ones, newest first: at most DigestRuns
}

// DigestRuns is how many runs of an event a notice describes, so that a thousand dead runs make a request no larger
// than twenty do.
const DigestRuns = 20

// DigestResponse is how many bytes of a response a notice quotes.
const DigestResponse = 200

// DigestRun is a run that an event is about; for missed, the recorded skip.
type DigestRun struct {
	ID           uuid.UUID `json:"id"`
	ScheduledFor time.Time `json:"scheduled_for"` // for missed, the last of the slots
	HappenedAt   time.Time `json:"happened_at"`
	Slots        *int      `json:"slots,omitempty"` // for missed: how many slots; absent above 1,000
	Reason       Reason    `json:"reason,omitempty"`
	HTTPStatus   int       `json:"http_status,omitempty"`
	Error        string    `json:"error,omitempty"`    // its start
	Response     string    `json:"response,omitempty"` // its first DigestResponse bytes
	Link         string    `json:"link,omitempty"`     // to the run
}

// For returns the part of the digest that a recipient asked for, in any of its entries.
func (d Digest) For(r jobspec.Recipient, list []jobspec.Notify) Digest {
	return d.Only(func(e jobspec.Event) bool { return r.Asks(list, e) })
}

// Only returns the part of the digest that is about some events.
func (d Digest) Only(about func(jobspec.Event) bool) Digest {
	d.Events = slices.DeleteFunc(slices.Clone(d.Events), func(e DigestEvent) bool { return !about(e.Event) })
	return d
}

// Merge returns the digest with what came after it. Each event is there once, at the place of its newest
// occurrence.
func (d Digest) Merge(after Digest) Digest {
	merged := after
	merged.Events = slices.Clone(d.Events)
	for _, e := range after.Events {
		if i := slices.IndexFunc(merged.Events, func(o DigestEvent) bool { return o.Event == e.Event }); i >= 0 {
			old := merged.Events[i]
			merged.Events = slices.Delete(merged.Events, i, i+1)
			e.Count, e.Slots = e.Count+old.Count, e.Slots+old.Slots
			if e.Cause == "" {
				e.Cause, e.CauseName = old.Cause, old.CauseName
			}
			e.FirstAt = jobspec.Earlier(e.FirstAt, old.FirstAt)
			e.Runs = slices.Concat(e.Runs, old.Runs)
			e.Runs = e.Runs[:min(len(e.Runs), DigestRuns)]
		}
		merged.Events = append(merged.Events, e)
	}
	return merged
}

// State returns the newest event that says whether the job is well; empty: none does.
func (d Digest) State() jobspec.Event {
	for _, e := range slices.Backward(d.Events) {
		if e.Event.Trouble() || e.Event.EndsTrouble() {
			return e.Event
		}
	}
	return ""
}

// Unreachable reports whether the newest trouble is that the job's host could not be reached, and returns the error.
func (d Digest) Unreachable() (why string, is bool) {
	for _, e := range slices.Backward(d.Events) {
		if e.Event != jobspec.EventFailing && e.Event != jobspec.EventDead || len(e.Runs) == 0 {
			continue
		}
		r := e.Runs[0]
		return r.Error, d.Host != "" && wire.NoConnection(wire.Reason(r.Reason), r.Error)
	}
	return "", false
}

// Recipients returns the recipients of a list, each once, in the order of the entries.
func Recipients(list []jobspec.Notify) []jobspec.Recipient {
	var all []jobspec.Recipient
	for _, entry := range list {
		if r := entry.Recipient(); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}
