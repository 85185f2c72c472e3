package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery"
)

// Notice returns the job by which a notice about j is sent. It carries j's identity and none of j's settings for its
// own runs: the notice is not a run of j. So it takes no gate, does not expire, and no notice is sent about it in
// turn. secret names the secret to add to its body; empty: none.
func (j *Job) Notice(url, secret string) (*Job, error) {
	target, err := delivery.CheckURL(url)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: the URL of a notice: %w", j.ID, j.Version, err)
	}
	d := Definition{Name: j.Name, Queue: j.Queue, Priority: j.Priority, Target: Target{URL: url}, Notify: []Notify{}}
	return &Job{
		ID: j.ID, Tenant: j.Tenant, Version: j.Version, Definition: d.WithDefaults(), Timetable: j.Timetable,
		url: target, header: http.Header{}, routing: secret,
	}, nil
}

// addRouting adds the routing key that a notice names to its body, a PagerDuty event.
func (s *Scheduler) addRouting(ctx context.Context, t *transmission, job *Job) error {
	if job.routing == "" {
		return nil
	}
	secret, err := s.config.Credentials.NamedSecret(ctx, job.Tenant, job.routing)
	if err != nil {
		return err
	}
	event := map[string]json.RawMessage{}
	if err := json.Unmarshal(t.Body, &event); err != nil {
		return authErrorf("the notice is not a JSON object, so the routing key cannot be added")
	}
	if event["routing_key"], err = json.Marshal(secret.Value); err != nil {
		return authErrorf("the routing key is not text")
	}
	if t.Body, err = json.Marshal(event); err != nil {
		return authErrorf("the notice cannot be written with its routing key")
	}
	t.secrets = append(t.secrets, secret.Value)
	return nil
}

// logDeadNotices logs the notices that were given up: no notice tells of them.
func logDeadNotices(log *slog.Logger, outcomes []Outcome) {
	for _, o := range outcomes {
		if o.Trigger == TriggerNotify && o.End().Status == StatusDead {
			log.Error("a notice could not be delivered and is now a dead letter; GET /v1/dead-letters?trigger=notify lists it",
				"run", o.RunID, "job", o.Job.Name, "host", o.Job.url.Host,
				"attempts", o.Attempt, "reason", o.Reason, "error", o.Error)
		}
	}
}

// Courier sends notices that are not runs: test notices, for a caller who waits for the answer.
type Courier struct{ scheduler Scheduler }

// NewCourier returns a courier that sends through client, and so to no address that jobs may not call.
func NewCourier(credentials Credentials, client *delivery.Client, log *slog.Logger) *Courier {
	return &Courier{Scheduler{
		config: Config{Client: client, Credentials: credentials}, log: log, tokens: newTokens(), tls: newTLSClients(),
	}}
}

// Send sends a notice of a tenant to a recipient, signed as all requests are. An error means that the keys and
// secrets for it could not be read from the database.
func (c *Courier) Send(
	ctx context.Context, tenant int32, to Recipient, job string, body []byte, timeout time.Duration,
) (delivery.Result, error) {
	about := Job{Tenant: tenant, Definition: Definition{Name: job}}
	notice, err := about.Notice(to.URL, to.Secret)
	if err != nil {
		return delivery.Result{}, err
	}
	now := time.Now()
	a := Assignment{
		RunID: NewRunID(now), Job: notice, Trigger: TriggerNotify, ScheduledFor: now, DueAt: now, Attempt: 1, Body: body,
	}
	r := a.Request("")
	r.Timeout = timeout
	return c.scheduler.transmit(ctx, a, r, now)
}

// News is what happened to a job since its last notice: the body of a notice of format json.
type News struct {
	Job    string      `json:"job"` // name
	JobID  uuid.UUID   `json:"job_id"`
	Tenant string      `json:"tenant"`         // name
	Link   string      `json:"link,omitempty"` // to the job's runs
	Events []NewsEvent `json:"events"`         // the events that were asked for; the latest comes last
}

// NewsEvent is an event and how often it happened.
type NewsEvent struct {
	Event   Event     `json:"event"`
	Count   int       `json:"count"` // of runs; for missed, of recorded skips
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	// Since is, for failing and dead, the time of the first failed attempt; for stale, of the last success; for recovered,
	// the start of the trouble that is over.
	Since    *time.Time `json:"since,omitempty"`
	Failures int        `json:"failures,omitempty"` // failed attempts in a row since then
	Runs     []NewsRun  `json:"runs"`               // the newest ones, newest first: at most NewsRuns
}

// NewsRuns is how many runs of an event a notice describes, so that a thousand dead runs make a request no larger
// than twenty do.
const NewsRuns = 20

// NewsResponse is how many bytes of a response a notice quotes.
const NewsResponse = 200

// NewsRun is a run that an event is about; for missed, the recorded skip.
type NewsRun struct {
	ID           uuid.UUID `json:"id"`
	ScheduledFor time.Time `json:"scheduled_for"` // for missed, the last of the slots
	HappenedAt   time.Time `json:"happened_at"`
	Slots        *int      `json:"slots,omitempty"` // for missed: how many slots; absent above 1,000
	Reason       Reason    `json:"reason,omitempty"`
	HTTPStatus   int       `json:"http_status,omitempty"`
	Error        string    `json:"error,omitempty"`    // its start
	Response     string    `json:"response,omitempty"` // its first NewsResponse bytes
	Link         string    `json:"link,omitempty"`     // to the run
}

// For returns the part of the news that a recipient asked for, in any of its entries.
func (n News) For(r Recipient, list []Notify) News {
	n.Events = slices.DeleteFunc(slices.Clone(n.Events), func(e NewsEvent) bool {
		return !slices.ContainsFunc(list, func(entry Notify) bool {
			return entry.Recipient() == r && slices.Contains(entry.On, e.Event)
		})
	})
	return n
}

// Recipients returns the recipients of a list, each once, in the order of the entries.
func Recipients(list []Notify) []Recipient {
	var all []Recipient
	for _, entry := range list {
		if r := entry.Recipient(); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}
