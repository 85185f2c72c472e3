package jobspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/delivery/wire"
)

// reservedNames are words that the API's paths use in place of a job's name.
var reservedNames = []string{"batch", "bulk", "apply"}

// Validate returns everything that is wrong with a definition, by field; nothing when it may be written.
func (d Definition) Validate() []Problem {
	var c checker
	c.name(d.Name)
	c.atMost("description", len(d.Description), "bytes", MaxDescription)
	c.text("description", d.Description)
	c.runbook(d.Runbook)
	c.logURL(d.LogURL)
	c.labels(d.Labels)
	c.schedule(d.Schedule)
	c.duration("jitter", d.Jitter, 0, 24*time.Hour)
	if !d.Jitter.IsZero() && d.Jitter.Value() > 0 && !d.Schedule.Kind().Recurring() {
		c.add("jitter", "%q: only cron and every schedules have jitter; leave it out", d.Jitter)
	}
	oneOf(&c, "missed.policy", d.Missed.Policy, MissedSkip, MissedFireOnce, MissedFireAll)
	c.missedConcurrency(d)
	c.duration("missed.tolerance", d.Missed.Tolerance, time.Second, 24*time.Hour)
	c.duration("missed.window", d.Missed.Window, time.Second, 366*24*time.Hour)
	oneOf(&c, "concurrency_policy", d.ConcurrencyPolicy, PolicyAllow, PolicyForbid, PolicyReplace, PolicyWait,
		PolicyQueue)
	c.limits(d)
	c.duration("expires_after", d.ExpiresAfter, time.Millisecond, 366*24*time.Hour)
	if !d.IsWorkflow() {
		c.target(d.Target)
	}
	c.steps(d)
	c.duration("timeout", d.Timeout, time.Millisecond, MaxTimeout)
	c.retry(d.Retry)
	if d.Queue != "" && !queueForm.MatchString(d.Queue) {
		c.add("queue", "%q: 1 to 64 letters, digits, dots, underscores and dashes, the first a letter or digit",
			clip(d.Queue))
	}
	oneOf(&c, "priority", d.Priority, PriorityHigh, PriorityNormal, PriorityLow)
	oneOf(&c, "delivery", d.Delivery, DeliverAtLeastOnce, DeliverAtMostOnce)
	c.completion(d)
	if n := d.KeepResponse; n != nil && (*n < 0 || *n > MaxKeepResponse) {
		c.add("keep_response", "%d is outside 0 to %d (64 KiB)", *n, MaxKeepResponse)
	}
	c.duration("expect_success_within", d.ExpectSuccessWithin, time.Second, 366*24*time.Hour)
	c.links(d)
	c.notify("notify", d.Notify)
	return c.problems
}

// Validate returns everything that is wrong with a schedule on its own; fields are relative to it.
func (s Schedule) Validate() []Problem {
	var c checker
	c.schedule(s)
	for i := range c.problems {
		c.problems[i].Field = strings.TrimPrefix(c.problems[i].Field, "schedule.")
	}
	return c.problems
}

func (c *checker) name(name string) {
	switch {
	case name == "":
		c.add("name", "is required: 1 to 128 letters, digits and . _ : -")
	case !NameForm.MatchString(name):
		c.add("name", "%q: %s", clip(name), NameRule)
	case uuidForm.MatchString(name):
		c.add("name", "%q looks like a UUID, so it could be mistaken for a job's id", name)
	case slices.Contains(reservedNames, name):
		c.add("name", "%q is reserved, as the API's own paths use it; choose another", name)
	}
}

func (c *checker) labels(labels map[string]string) {
	c.atMost("labels", len(labels), "labels", MaxLabels)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		field := "labels." + clip(key)
		if !labelForm.MatchString(key) {
			c.add(field, "a label's name is 1 to 63 letters, digits and . _ / -, with a letter or digit at both ends")
		}
		c.atMost(field, len(labels[key]), "bytes", 256)
		c.text(field, labels[key])
	}
}

func (c *checker) limits(d Definition) {
	c.atMost("limits", len(d.Limits), "limits", MaxLimits)
	for i, name := range d.Limits {
		field := fmt.Sprintf("limits[%d]", i)
		switch {
		case !NameForm.MatchString(name):
			c.add(field, "%q: %s", clip(name), NameRule)
		case slices.Contains(d.Limits[:i], name):
			c.add(field, "%q stands there twice; name it once", name)
		}
	}
	switch n := d.MaxPendingRuns; {
	case n < 0 || n > MaxPendingRuns:
		c.add("max_pending_runs", "%d is outside 1 to %d", n, MaxPendingRuns)
	case n > 0 && d.ConcurrencyPolicy != PolicyQueue:
		c.add("max_pending_runs", "%d: only jobs with concurrency_policy queue have it; leave it out", n)
	}
}

func (c *checker) missedConcurrency(d Definition) {
	policy := d.WithDefaults().ConcurrencyPolicy
	oneOf(c, "missed.concurrency", d.Missed.Concurrency, MissedOneAtATime, MissedAllow)
	switch {
	case d.Missed.Concurrency == "":
	case d.Missed.Policy != MissedFireAll:
		c.add("missed.concurrency", "%s: only jobs with missed.policy fire_all have it; leave it out", d.Missed.Concurrency)
	case d.Missed.Concurrency == MissedAllow && policy != PolicyAllow:
		c.add("missed.concurrency", "allow: with concurrency_policy %s no two runs of the job overlap; leave it out, or "+
			"set concurrency_policy to allow", policy)
	}
}

// earliest and latest bound every instant of a definition. Within them all arithmetic on nanoseconds is safe.
var (
	earliest = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (c *checker) schedule(s Schedule) {
	kinds := s.kindsSet()
	if len(kinds) > 1 {
		c.add("schedule", "%s are set; at most one of cron, every, at, delay and event may be", strings.Join(kinds, " and "))
	}
	kind := s.Kind()
	if s.Cron != "" {
		if _, err := cron.Parse(s.Cron); err != nil {
			c.add("schedule.cron", "%v%s", err, cronHint(s.Cron, s.Timezone))
		}
	}
	if s.Timezone != "" {
		_, err := cron.LoadZone(s.Timezone)
		c.check("schedule.timezone", err)
		switch kind {
		case KindCron:
		case KindAt:
			if s.At.Local().IsZero() && !s.At.bad {
				c.add("schedule.timezone", "%q: schedule.at has an offset; leave one of the two out", clip(s.Timezone))
			}
		case KindEvery:
			c.add("schedule.timezone",
				`%q: only cron and at schedules have a zone; leave it out: a daily time is a cron such as "0 9 * * *"`,
				clip(s.Timezone))
		default:
			c.add("schedule.timezone", "%q: only cron and at schedules have a zone; leave it out", clip(s.Timezone))
		}
	}
	if s.Event != "" && !NameForm.MatchString(s.Event) {
		c.add("schedule.event", "%q: %s", clip(s.Event), NameRule)
	}
	switch {
	case s.Filter == "":
	case kind != KindEvent:
		c.add("schedule.filter", "only events have a filter; leave it out")
	default:
		c.filter(s.Filter)
	}
	c.duration("schedule.every", s.Every, time.Second, 366*24*time.Hour)
	if s.Every.Value()%time.Second != 0 {
		c.add("schedule.every", "%q: must be whole seconds", s.Every)
	}
	c.duration("schedule.delay", s.Delay, 0, 10*366*24*time.Hour)
	c.instant("schedule.at", s.resolved())
	c.instant("schedule.starts_at", s.StartsAt)
	c.instant("schedule.ends_at", s.EndsAt)
	if !kind.Recurring() && (!s.StartsAt.IsZero() || !s.EndsAt.IsZero()) {
		c.add("schedule", "starts_at and ends_at bound cron and every schedules only; leave them out")
	}
	if !s.StartsAt.IsZero() && !s.EndsAt.IsZero() && s.EndsAt.Value().Before(s.StartsAt.Value()) {
		c.add("schedule.ends_at", "%q is before starts_at %q", s.EndsAt, s.StartsAt)
	}
}

func (c *checker) target(t Target) {
	if t.URL == "" {
		c.add("target.url", "is required: an absolute http or https URL")
	} else if _, err := ParseAddress(t.URL); err != nil {
		c.add("target.url", "%v", err)
	}
	if err := wire.CheckHost(t.Host); t.Host != "" && err != nil {
		c.add("target.host", "%q %v", clip(t.Host), err)
	}
	if t.Method != "" {
		c.check("target.method", wire.CheckMethod(t.Method))
	}
	c.problems = append(c.problems, ValidateRequest("target.", t.Headers, t.Body)...)
	c.placeholders("target.", t.Headers, t.Body)
	c.secrets(t)
	c.bodySecrets(t.Body)
	if fault := UnfitJSON(t.Body); fault != "" {
		c.add("target.body", "%s", fault)
	}
}

// runbook checks a link for people: it may have a fragment, which a target may not.
func (c *checker) runbook(raw string) {
	if u, err := wire.CheckLink(raw); raw != "" && (err != nil || u.Scheme != "https") {
		c.add("runbook", "%q: must be an absolute https URL without a user, such as https://wiki.example.com/runbook, of "+
			"at most %d bytes", clip(raw), wire.MaxURL)
	}
}

// ValidateRequest returns what is wrong with the headers and body of a request. prefix is put before the field names.
// What a caller gives to a run is data: no placeholder is looked for in it.
func ValidateRequest(prefix string, headers map[string]string, body json.RawMessage) []Problem {
	var c checker
	c.atMost(prefix+"headers", len(headers), "headers", MaxHeaders)
	written := make(map[string]string, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		field := prefix + "headers." + clip(name)
		c.check(field, wire.CheckHeader(name, headers[name]))
		// Names must differ by more than upper and lower case: otherwise chance decides which header is sent.
		if other, twice := written[textproto.CanonicalMIMEHeaderKey(name)]; twice {
			c.add(field, "is the same header as %q; give it once", clip(other))
		}
		written[textproto.CanonicalMIMEHeaderKey(name)] = name
	}
	c.payload(prefix+"body", body)
	return c.problems
}

// ValidateEvent returns what is wrong with the body of an event, which is sent as it is.
func ValidateEvent(body json.RawMessage) []Problem {
	var c checker
	c.payload("body", body)
	return c.problems
}

func (c *checker) payload(field string, body json.RawMessage) {
	if len(body) > MaxPayload {
		c.add(field, "%d bytes; at most %d (256 KiB)", len(body), MaxPayload)
	}
}

func (c *checker) completion(d Definition) {
	if d.Completion == "callback" {
		c.add("completion", `"callback" is not one of response, async: for work whose end the target reports, use "async"`)
	} else {
		oneOf(c, "completion", d.Completion, CompleteOnResponse, CompleteAsync)
	}
	c.ofAsync(d, "heartbeat_timeout", d.HeartbeatTimeout, 24*time.Hour)
	if d.IsWorkflow() {
		c.duration("max_duration", d.MaxDuration, time.Second, 30*24*time.Hour)
		return
	}
	c.ofAsync(d, "max_duration", d.MaxDuration, 30*24*time.Hour)
}

// ofAsync checks a duration that only jobs with completion async have.
func (c *checker) ofAsync(d Definition, field string, value Duration, longest time.Duration) {
	c.duration(field, value, time.Second, longest)
	if !value.IsZero() && d.Completion != CompleteAsync {
		c.add(field, "%q: only jobs with completion async have it; leave it out", value)
	}
}

func (c *checker) retry(r Retry) {
	if r.MaxAttempts < 0 || r.MaxAttempts > MaxAttempts {
		c.add("retry.max_attempts", "%d is outside 1 to %d", r.MaxAttempts, MaxAttempts)
	}
	c.duration("retry.initial_backoff", r.InitialBackoff, 0, 24*time.Hour)
	c.duration("retry.max_backoff", r.MaxBackoff, 0, 7*24*time.Hour)
	if r.Multiplier != 0 && !(r.Multiplier >= 1 && r.Multiplier <= 100) {
		c.add("retry.multiplier", "%v is outside 1 to 100", r.Multiplier)
	}
	for i, status := range r.GiveUpOn {
		if status < 300 || status > 599 {
			c.add(fmt.Sprintf("retry.give_up_on[%d]", i), "%d is not an HTTP status of a failure (300 to 599)", status)
		}
	}
}
