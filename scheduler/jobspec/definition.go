package jobspec

import (
	"encoding/json"
	"time"

	"punctual/scheduler/cron"
)

// Definition is what a job does and when, in the form of the API, of manifests and of job_versions.definition.
// WithDefaults fills in the defaults of absent fields.
type Definition struct {
	Name              string            `json:"name" doc:"Unique within the tenant." example:"daily-invoice-gen"`
	Description       string            `json:"description,omitempty" doc:"For people. Absent: none."`
	Runbook           string            `json:"runbook,omitempty" minLength:"1" doc:"https URL of instructions to fix the job. Notices carry it. Absent: none." example:"https://wiki.example.com/runbooks/invoices"`
	LogURL            string            `json:"log_url,omitempty" minLength:"1" doc:"http or https URL of the log of a run. Path, query and fragment may hold placeholders. The header Punctual-Log-Url of an answer replaces it. Absent: none." example:"https://logs.example.com/search?q={{run}}"`
	Labels            map[string]string `json:"labels,omitempty" doc:"To filter jobs and runs by. Absent: none."`
	Schedule          Schedule          `json:"schedule,omitzero" doc:"When it fires: one of cron, every, at, delay and event. Absent: it runs only when triggered."`
	Jitter            Duration          `json:"jitter,omitzero" doc:"Delays each slot by a fixed offset, hashed from the job's id, in [0, jitter), or within half the gap to the next slot if that is less. Absent: the deployment's default (--default-jitter, 1s) for cron slots a minute or more apart, else 0s." example:"1s"`
	Missed            Missed            `json:"missed,omitzero" doc:"The policy for slots that were not claimed in time."`
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrency_policy,omitempty" minLength:"1" enum:"allow,forbid,replace,wait,queue" doc:"The policy for a slot that is due while a run of the job is active. allow: both run; forbid: the slot is skipped, on record; replace: the active run is cancelled; wait: one run waits; queue: all wait, and run one at a time, the oldest first. Absent: allow; forbid for a job with steps or completion async that has slots."`
	MaxPendingRuns    int               `json:"max_pending_runs,omitempty" minimum:"1" maximum:"100000" doc:"With concurrency_policy queue: most runs that wait. Further slots are skipped (limit), and triggers refused. Absent: 1000." example:"1000"`
	Limits            []string          `json:"limits,omitempty" maxItems:"4" doc:"Up to four limits (PUT /v1/limits/{limit}), shared by all jobs that name them. A run starts when all have room, and holds them until it ends. Absent: none." example:"[\"warehouse\"]"`
	ExpiresAfter      Duration          `json:"expires_after,omitzero" doc:"How long after the slot was due an attempt may still start. Absent: no limit." example:"1h"`
	Target            Target            `json:"target,omitzero" doc:"The HTTP request to send. Absent: the job has steps."`
	Steps             []Step            `json:"steps,omitempty" maxItems:"50" doc:"In place of a target: the steps of a workflow, 1 to 50. Each has a run of its own; schedule, overlap, expiry, pauses, triggers, notices and chains are the job's. Absent: the job has a target."`
	Timeout           Duration          `json:"timeout,omitzero" doc:"Time limit for a whole exchange with the target: 1ms to 24h." example:"30s"`
	Retry             Retry             `json:"retry,omitzero" doc:"Further attempts after a failure."`
	Queue             string            `json:"queue,omitempty" minLength:"1" doc:"The queue in which its runs wait." example:"default"`
	Priority          Priority          `json:"priority,omitempty" minLength:"1" enum:"high,normal,low" doc:"Order within the queue."`
	Delivery          Delivery          `json:"delivery,omitempty" minLength:"1" enum:"at_least_once,at_most_once" doc:"at_least_once: until a run succeeds or exhausts its attempts; at_most_once: a request that may have been sent is never repeated."`
	Completion        Completion        `json:"completion,omitempty" minLength:"1" enum:"response,async" doc:"When an attempt is done. response: with its answer; async: when the target, which answers 202, reports the end."`
	HeartbeatTimeout  Duration          `json:"heartbeat_timeout,omitzero" doc:"With completion async: the attempt is lost if the target is silent for longer. Absent: 5m." example:"5m"`
	MaxDuration       Duration          `json:"max_duration,omitzero" doc:"With completion async: the longest that an attempt may take, heartbeats or not. Absent: 24h. Of a job with steps: the longest that all of them may take; absent: 7 days. Steps with when: ended may then run for as long again, at most 5m." example:"24h"`
	KeepResponse      *int              `json:"keep_response,omitempty" doc:"Bytes of each response body to keep, also for successes: at most 65536 (64 KiB); 0 keeps nothing. Absent: 1024, for failures only." minimum:"0" maximum:"65536" example:"4096"`
	// SubmittersMayTrigger is a pointer because absence means something else in a job that a submitter creates.
	SubmittersMayTrigger *bool `json:"submitters_may_trigger,omitempty" doc:"Whether submitters may trigger it. Absent: false; for a job that a submitter creates: true." example:"false"`

	ExpectSuccessWithin Duration `json:"expect_success_within,omitzero" doc:"The job is stale when it has had no success for this long, 1s to 366 days, since the last success, or else its creation or resume; a one-shot since it was due. A paused job is never stale. Absent: never stale." example:"26h"`
	Then                []Link   `json:"then,omitempty" doc:"Jobs that its runs trigger when they end, at most 10. Absent: none."`
	Notify              []Notify `json:"notify,omitzero" doc:"Recipients of notices when the job has trouble, and when it recovers. The first event of a kind is sent at once; more of the kind within five minutes are sent together. An empty list: none. Absent: the tenant's default."`
}

// Schedule says when a job fires. Exactly one of Cron, Every, At, Delay and Event is set; a job with none of them fires
// only when triggered.
type Schedule struct {
	Cron     string   `json:"cron,omitempty" minLength:"1" doc:"Cron expression of 5 fields, or 6 with leading seconds; names, L, LW, L-2, 15W, 5#2 and @hourly, @daily, @weekly, @monthly, @yearly. Absent: another kind." example:"0 3 * * mon-fri"`
	Timezone string   `json:"timezone,omitempty" minLength:"1" doc:"IANA time zone of cron, or of an at without an offset. Absent: cron is in UTC." example:"America/Los_Angeles"`
	Every    Duration `json:"every,omitzero" doc:"Fixed period of whole seconds, aligned to the Unix epoch or to starts_at. Absent: another kind." example:"90s"`
	At       Instant  `json:"at,omitzero" format:"instant-or-local-time" doc:"One shot at this instant, or, without an offset, at this local time of timezone. A local time that daylight saving skips moves forward; of one that comes twice the first counts. An instant in the past, no further back than runs are kept, fires at once under this nominal time, and is late beyond the tolerance. Absent: another kind." example:"2026-12-01T09:00:00+01:00"`
	Delay    Duration `json:"delay,omitzero" doc:"One shot this long after the definition is written. Any change of the definition starts the delay again. Absent: another kind." example:"5m"`
	Event    string   `json:"event,omitempty" minLength:"1" doc:"A run for each event with this name (POST /v1/events/{event}) that filter lets in. Absent: another kind." example:"invoice.paid"`
	// Filter is a text so that schedules can be compared.
	Filter   EventFilter `json:"filter,omitempty" doc:"Only events whose body has all of these fields at its top level, each with this value, or one of a list of values: strings, numbers, booleans and null. Absent: all events."`
	StartsAt Instant     `json:"starts_at,omitzero" doc:"No slot before this instant (cron, every). Absent: no limit."`
	EndsAt   Instant     `json:"ends_at,omitzero" doc:"No slot after this instant (cron, every). Absent: no limit."`
}

// Kind names the kind of a schedule.
type Kind string

// The kinds of schedules.
const (
	KindCron  Kind = "cron"
	KindEvery Kind = "every"
	KindAt    Kind = "at"
	KindDelay Kind = "delay"
	KindEvent Kind = "event"
	KindNone  Kind = "none"
)

// Kind returns the kind of s. If several are set, which Validate refuses, it returns the first of them.
func (s Schedule) Kind() Kind {
	switch {
	case s.Cron != "":
		return KindCron
	case !s.Every.IsZero():
		return KindEvery
	case !s.At.IsZero():
		return KindAt
	case !s.Delay.IsZero():
		return KindDelay
	case s.Event != "":
		return KindEvent
	}
	return KindNone
}

// kindsSet names the kinds that are set.
func (s Schedule) kindsSet() []string {
	var kinds []string
	for _, k := range []struct {
		kind Kind
		set  bool
	}{
		{KindCron, s.Cron != ""},
		{KindEvery, !s.Every.IsZero()},
		{KindAt, !s.At.IsZero()},
		{KindDelay, !s.Delay.IsZero()},
		{KindEvent, s.Event != ""},
	} {
		if k.set {
			kinds = append(kinds, string(k.kind))
		}
	}
	return kinds
}

// Onto returns what a patch keeps of s when the patch sets exactly one kind. If that is another kind than that of s,
// s loses its kind and the fields that only schedules of its kind have. A patch that sets no kind, or several, leaves
// s as it is.
func (s Schedule) Onto(patch Schedule) Schedule {
	kind := patch.Kind()
	if kind == KindNone || kind == s.Kind() || len(patch.kindsSet()) > 1 {
		return s
	}
	s.Cron, s.Every, s.At, s.Delay, s.Timezone = "", Duration{}, Instant{}, Duration{}, ""
	s.Event, s.Filter = "", ""
	if !kind.Recurring() {
		s.StartsAt, s.EndsAt = Instant{}, Instant{}
	}
	return s
}

// Instant returns the instant of a one-shot: at, as the clock of the zone shows it if it has no offset. It is zero if
// that is malformed or absent.
func (s Schedule) Instant() time.Time { return s.resolved().value }

// resolved returns at with its value, also where that needs the zone.
func (s Schedule) resolved() Instant {
	if s.At.Local().IsZero() || s.Timezone == "" {
		return s.At
	}
	slot, zone := s.localSlot()
	if zone == nil {
		return Instant{} // the zone is reported
	}
	return Instant{text: s.At.text, value: slot.At}
}

// localSlot returns the slot of an at without an offset.
func (s Schedule) localSlot() (cron.Slot, *time.Location) {
	zone, err := cron.LoadZone(s.Timezone)
	if err != nil {
		return cron.Slot{}, nil
	}
	return cron.Local(s.At.Local(), zone), zone
}

// Recurring reports whether the kind has more than one slot.
func (k Kind) Recurring() bool { return k == KindCron || k == KindEvery }

// OneShot reports whether the kind has exactly one slot.
func (k Kind) OneShot() bool { return k == KindAt || k == KindDelay }

// Slots reports whether jobs of the kind have slots. The others run at events, or only when triggered.
func (k Kind) Slots() bool { return k.Recurring() || k.OneShot() }

// Target is the HTTP request a run sends.
type Target struct {
	URL     string            `json:"url" doc:"Absolute http or https URL, of a public address or one that the deployment or the tenant may call. Path and query may hold placeholders such as {{scheduled_for|date}}." example:"https://billing.internal/invoices"`
	Host    string            `json:"host,omitempty" minLength:"1" doc:"Another name of the target, for the header Host, the TLS handshake (SNI) and the check of the certificate: a host name or address, with a port if need be. For targets behind an ingress that is reached by its address or an internal name. The connection still goes to the host of the URL. Absent: the host of the URL." example:"billing.internal"`
	Method  string            `json:"method,omitempty" minLength:"1" doc:"GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS." example:"POST"`
	Headers map[string]string `json:"headers,omitempty" doc:"Added to the request. Values may hold placeholders: {{scheduled_for}}, {{scheduled_for_local}}, {{run}}, {{attempt}}, {{job}}. The first two may have a form, as in {{scheduled_for|date}}. Absent: none."`
	Body    json.RawMessage   `json:"body,omitempty" doc:"A string is sent as it is, any other value as JSON. Strings at any depth may hold placeholders such as {{scheduled_for|date}}; {{{{ stands for two literal braces. An object {\"$secret\": \"name\"}, at any depth, stands for the value of a secret (PUT /v1/secrets/{secret}), sent as a string and shown nowhere: at most 16. Absent: no body."`

	Auth          *Auth             `json:"auth,omitempty" doc:"How the request authenticates. If a secret is missing or a token cannot be fetched, nothing is sent, and the attempt fails (auth). Absent: it does not."`
	SecretHeaders map[string]Hidden `json:"secret_headers,omitempty" doc:"Headers with secret values: stored encrypted, and shown as ***. Absent: none; in a patch, they stay."`
	TLS           *TLS              `json:"tls,omitempty" doc:"The client certificate, and the authorities that verify the target. Absent: no certificate, and the authorities of the deployment."`
}

// ConcurrencyPolicy decides what happens when a slot is due while a run of the job is active.
type ConcurrencyPolicy string

// The concurrency policies.
const (
	PolicyAllow   ConcurrencyPolicy = "allow"   // both run
	PolicyForbid  ConcurrencyPolicy = "forbid"  // the slot is recorded as a skip
	PolicyReplace ConcurrencyPolicy = "replace" // the active run is cancelled, and the new one starts when it has ended
	PolicyWait    ConcurrencyPolicy = "wait"    // one run waits for the active one to end; further slots become skips
	PolicyQueue   ConcurrencyPolicy = "queue"   // all runs wait, and go one at a time, the oldest first
)

// OneWaits reports whether one run at most waits for the active one of its job.
func (p ConcurrencyPolicy) OneWaits() bool { return p != PolicyAllow && p != PolicyQueue }

// Delivery says how often a request may be sent.
type Delivery string

// The delivery modes.
const (
	DeliverAtLeastOnce Delivery = "at_least_once" // a request whose outcome is unknown is sent again
	DeliverAtMostOnce  Delivery = "at_most_once"  // an attempt that may have been sent is the last
)

// Completion says when an attempt is done.
type Completion string

// The ways of completion.
const (
	CompleteOnResponse Completion = "response" // with any 2xx
	CompleteAsync      Completion = "async"    // after 202 when the target says so; after any other 2xx at once
)

// Missed says what happens to slots claimed later than Tolerance after they were due.
type Missed struct {
	Policy    MissedPolicy `json:"policy,omitempty" minLength:"1" enum:"skip,fire_once,fire_all" doc:"skip: no missed slot runs; fire_once: the newest; fire_all: each, the oldest first."`
	Tolerance Duration     `json:"tolerance,omitzero" doc:"A slot claimed later than this after it was due is missed." example:"60s"`
	Window    Duration     `json:"window,omitzero" doc:"Missed slots older than this never run. Absent: the newest may run until the next one is due, older ones for 24h; both no longer than runs are kept. One-shots: unlimited." example:"24h"`

	Concurrency MissedConcurrency `json:"concurrency,omitempty" minLength:"1" enum:"one_at_a_time,allow" doc:"With policy fire_all. one_at_a_time: each begins when the run before has ended, retries included, regardless of concurrency_policy; allow: at once, only with concurrency_policy allow. Absent: one_at_a_time." example:"one_at_a_time"`
}

// InOrder reports whether each missed slot waits for the end of the one before.
func (m Missed) InOrder() bool { return m.Policy == MissedFireAll && m.Concurrency != MissedAllow }

// MissedConcurrency says whether the runs of missed slots may overlap each other.
type MissedConcurrency string

// How missed slots run under fire_all.
const (
	MissedOneAtATime MissedConcurrency = "one_at_a_time"
	MissedAllow      MissedConcurrency = "allow"
)

// MissedPolicy names what happens to missed slots.
type MissedPolicy string

// The policies for missed slots.
const (
	MissedSkip     MissedPolicy = "skip"
	MissedFireOnce MissedPolicy = "fire_once"
	MissedFireAll  MissedPolicy = "fire_all"
)

// Retry says what happens after a failed attempt.
type Retry struct {
	MaxAttempts    int      `json:"max_attempts,omitempty" minimum:"1" maximum:"100" doc:"Attempts in all, the first included: 1 to 100." example:"5"`
	InitialBackoff Duration `json:"initial_backoff,omitzero" doc:"Delay after the first failure." example:"10s"`
	Multiplier     float64  `json:"multiplier,omitempty" minimum:"1" maximum:"100" doc:"Factor by which the delay grows with each failure: 1 to 100." example:"3"`
	MaxBackoff     Duration `json:"max_backoff,omitzero" doc:"Longest delay, even if Retry-After asks for more." example:"1h"`
	GiveUpOn       []int    `json:"give_up_on,omitzero" doc:"HTTP statuses that end the run at once." example:"[410]"`
	AfterTimeout   *bool    `json:"after_timeout,omitempty" doc:"Whether another attempt follows one that was not answered in time, on which the target may still work. False: the run is dead (timeout). Absent: true for concurrency_policy allow, false for the others and for a run that holds a limit with max_running." example:"true"`
}

// Priority orders runs within a queue.
type Priority string

// The priorities.
const (
	PriorityHigh   Priority = "high"
	PriorityNormal Priority = "normal"
	PriorityLow    Priority = "low"
)

// Lane returns the number under which a queue's runs of priority p wait: queue id x 4 + 0 for high,
// 1 for normal, 2 for low.
func (p Priority) Lane(queue int16) int16 {
	offset := int16(1)
	switch p {
	case PriorityHigh:
		offset = 0
	case PriorityLow:
		offset = 2
	}
	return queue*4 + offset
}

// DefaultQueue is the queue of a definition that names none; it always exists.
const DefaultQueue = "default"

// Defaults of a definition. Source: semantics, on missed slots and delivery.
var (
	DefaultTolerance      = mustDuration("60s")
	DefaultTimeout        = mustDuration("30s")
	DefaultMaxAttempts    = 5
	DefaultInitialBackoff = mustDuration("10s")
	DefaultMultiplier     = 3.0
	DefaultMaxBackoff     = mustDuration("1h")

	DefaultHeartbeatTimeout = mustDuration("5m")
	DefaultMaxDuration      = mustDuration("24h")

	DefaultMaxPendingRuns = 1000
)

// LeastWindow is the shortest window of a job that has none of its own: see missed.window.
const LeastWindow = 24 * time.Hour

// DefaultJitter is the default jitter of a deployment that sets none.
const DefaultJitter = time.Second

// EffectiveJitter is the jitter that a definition has under the deployment's default. The default applies to cron
// slots a minute or more apart. One-shots and jobs without a schedule have no jitter.
func (d Definition) EffectiveJitter(byDefault time.Duration) Duration {
	kind := d.Schedule.Kind()
	switch {
	case kind.Recurring() && !d.Jitter.IsZero():
		return d.Jitter
	case kind != KindCron:
		return DurationOf(0)
	}
	if expr, err := cron.Parse(d.Schedule.Cron); err != nil || expr.SubMinute() {
		return DurationOf(0)
	}
	return DurationOf(byDefault)
}

// WithDefaults returns d with every default filled in except Jitter. The deployment decides that one: see
// EffectiveJitter.
func (d Definition) WithDefaults() Definition {
	if (d.Completion == CompleteAsync || d.IsWorkflow()) && d.Schedule.Kind().Slots() {
		fill(&d.ConcurrencyPolicy, PolicyForbid) // long work seldom may overlap itself, but what was asked for is not dropped
	}
	fill(&d.ConcurrencyPolicy, PolicyAllow)
	if d.ConcurrencyPolicy == PolicyQueue {
		fill(&d.MaxPendingRuns, DefaultMaxPendingRuns)
	}
	fill(&d.Priority, PriorityNormal)
	fill(&d.Queue, DefaultQueue)
	fill(&d.Timeout, DefaultTimeout)
	if !d.IsWorkflow() {
		fill(&d.Target.Method, "POST")
	}
	fill(&d.Delivery, DeliverAtLeastOnce)
	d.Then = withWhen(d.Then)
	fill(&d.Completion, CompleteOnResponse)
	if d.IsWorkflow() {
		fill(&d.MaxDuration, DefaultWorkflowDuration)
	}
	if d.Completion == CompleteAsync {
		fill(&d.HeartbeatTimeout, DefaultHeartbeatTimeout)
		fill(&d.MaxDuration, DefaultMaxDuration)
	}
	fill(&d.Missed.Policy, MissedFireOnce)
	if d.Missed.Policy == MissedFireAll {
		fill(&d.Missed.Concurrency, MissedOneAtATime)
	}
	fill(&d.Missed.Tolerance, DefaultTolerance)
	fill(&d.Retry.MaxAttempts, DefaultMaxAttempts)
	fill(&d.Retry.InitialBackoff, DefaultInitialBackoff)
	fill(&d.Retry.Multiplier, DefaultMultiplier)
	fill(&d.Retry.MaxBackoff, DefaultMaxBackoff)
	if d.Retry.GiveUpOn == nil {
		d.Retry.GiveUpOn = []int{410}
	}
	d.fillAfterTimeout(d.ConcurrencyPolicy)
	if d.Schedule.Kind() == KindCron {
		fill(&d.Schedule.Timezone, "UTC")
	}
	if d.SubmittersMayTrigger == nil {
		d.SubmittersMayTrigger = new(false)
	}
	return d
}

// fillAfterTimeout sets retry.after_timeout, if it is absent, by whether runs may overlap. With limits it stays absent:
// whether they bound how many run, an attempt knows that holds them.
func (d *Definition) fillAfterTimeout(policy ConcurrencyPolicy) {
	if d.Retry.AfterTimeout == nil && (policy != PolicyAllow || len(d.Limits) == 0) {
		d.Retry.AfterTimeout = new(policy == PolicyAllow)
	}
}

// fill sets a field that is absent.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
