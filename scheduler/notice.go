package scheduler

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/delivery"
)

// Notifies reports whether one of the job's notify URLs is to be told of an event.
func (j *Job) Notifies(e Event) bool {
	return slices.ContainsFunc(j.Notify, func(n Notify) bool { return slices.Contains(n.On, e) })
}

// Notice returns what a notice to one of the job's notify URLs is sent by. It is about the job and not a run
// of it: of the job it has the identity and nothing that it says about its own runs. So it takes no gate,
// does not expire, and nobody is told of what becomes of it.
func (j *Job) Notice(url string) (*Job, error) {
	target, err := delivery.CheckURL(url)
	if err != nil {
		return nil, fmt.Errorf("job %s version %d: the URL of a notice: %w", j.ID, j.Version, err)
	}
	d := Definition{Name: j.Name, Queue: j.Queue, Priority: j.Priority, Target: Target{URL: url}}
	return &Job{
		ID: j.ID, Tenant: j.Tenant, Version: j.Version, Definition: d.WithDefaults(), Timetable: j.Timetable, url: target, header: http.Header{},
	}, nil
}

// News is the body of a notice: what happened to a job since the URL was last told.
type News struct {
	Job    string      `json:"job"` // name
	JobID  uuid.UUID   `json:"job_id"`
	Tenant string      `json:"tenant"` // name
	Events []NewsEvent `json:"events"` // of what the URL asked for; the one that happened last comes last
}

// NewsEvent is an event and how often it happened.
type NewsEvent struct {
	Event   Event     `json:"event"`
	Count   int       `json:"count"` // of runs; for missed, of recorded skips
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	Runs    []NewsRun `json:"runs"` // the newest of them, newest first: at most NewsRuns
}

// NewsRuns is how many runs of an event a notice describes, so that a thousand deaths make a request that
// is no larger than that of twenty.
const NewsRuns = 20

// NewsRun is a run that an event is about; for missed, the recorded skip.
type NewsRun struct {
	ID           uuid.UUID `json:"id"`
	ScheduledFor time.Time `json:"scheduled_for"` // for missed, the last of the slots
	HappenedAt   time.Time `json:"happened_at"`
	Slots        *int      `json:"slots,omitempty"` // for missed: how many slots; absent above 1,000
	Reason       Reason    `json:"reason,omitempty"`
	Error        string    `json:"error,omitempty"` // its start
}

// For returns the part of the news that one of the job's notify URLs asked for, on whichever of its entries.
func (n News) For(url string, list []Notify) News {
	n.Events = slices.DeleteFunc(slices.Clone(n.Events), func(e NewsEvent) bool {
		return !slices.ContainsFunc(list, func(entry Notify) bool { return entry.URL == url && slices.Contains(entry.On, e.Event) })
	})
	return n
}
