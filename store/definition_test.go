package store

import (
	"time"

	"punctual/scheduler/domain"
)

// began is when the tests began.
var began = time.Now().Truncate(time.Second)

// option changes a definition.
type option = func(*domain.Definition)

// definition returns the definition of an hourly job. Its slots are half an hour away from the beginning of the tests,
// so no slot becomes due during a test, whatever the time of day. The options change the definition.
func definition(name string, options ...option) domain.Definition {
	d := domain.Definition{
		Name: name, Target: domain.Target{URL: "https://example.com/hook"}, Jitter: domain.Duration{},
	}
	d.Schedule.Every = domain.DurationOf(time.Hour)
	d.Schedule.StartsAt = domain.InstantOf(began.Add(-1000*time.Hour - 30*time.Minute))
	for _, o := range options {
		o(&d)
	}
	return d
}

func every(period time.Duration) option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Every: domain.DurationOf(period)}
	}
}

func at(t time.Time) option {
	return func(d *domain.Definition) { d.Schedule = domain.Schedule{At: domain.InstantOf(t)} }
}

func delay(span time.Duration) option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Delay: domain.DurationOf(span)}
	}
}

func cronAt(expression string, options ...option) option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Cron: expression}
		for _, o := range options {
			o(d)
		}
	}
}

func never(d *domain.Definition) { d.Schedule = domain.Schedule{} }

// halfPast gives a job an hourly schedule whose nearest slots are half an hour from now, whatever the time of day.
func halfPast(d *domain.Definition) {
	every(time.Hour)(d)
	d.Schedule.StartsAt = domain.InstantOf(time.Now().Truncate(time.Second).Add(-1000*time.Hour - 30*time.Minute))
}

// rarely gives a job a slot every 366 days, so that no slot comes between the slots that a test sets.
func rarely(d *domain.Definition) { every(366 * 24 * time.Hour)(d) }

// patient gives a job an hourly schedule and a tolerance with which even old slots are in time.
func patient(d *domain.Definition) {
	every(time.Hour)(d)
	tolerating(1000 * time.Hour)(d)
}

func missed(policy domain.MissedPolicy) option {
	return func(d *domain.Definition) { d.Missed.Policy = policy }
}

func window(span time.Duration) option {
	return func(d *domain.Definition) { d.Missed.Window = domain.DurationOf(span) }
}

func tolerating(span time.Duration) option {
	return func(d *domain.Definition) { d.Missed.Tolerance = domain.DurationOf(span) }
}

// tolerant makes every slot of an hourly job count as missed, except the newest.
func tolerant(d *domain.Definition) { tolerating(time.Hour)(d) }

func expiring(after time.Duration) option {
	return func(d *domain.Definition) { d.ExpiresAfter = domain.DurationOf(after) }
}

func overlapping(p domain.ConcurrencyPolicy) option {
	return func(d *domain.Definition) { d.ConcurrencyPolicy = p }
}

func forbid(d *domain.Definition) { d.ConcurrencyPolicy = domain.PolicyForbid }

func replacing(d *domain.Definition) { d.ConcurrencyPolicy = domain.PolicyReplace }

func prioritised(p domain.Priority) option {
	return func(d *domain.Definition) { d.Priority = p }
}

// jittered gives a job a jitter whose offset exceeds a few seconds for nearly all ids. The tests set next_run_at
// themselves.
func jittered(d *domain.Definition) { d.Jitter = domain.DurationOf(20 * time.Minute) }

func described(text string) option {
	return func(d *domain.Definition) { d.Description = text }
}

func labelled(key, value string) option {
	return func(d *domain.Definition) { d.Labels = map[string]string{key: value} }
}

// byCallback gives a job asynchronous completion: its target works on after a 202.
func byCallback(d *domain.Definition) {
	d.Completion = domain.CompleteAsync
	d.HeartbeatTimeout, d.MaxDuration = domain.DurationOf(time.Minute), domain.DurationOf(time.Hour)
}

// notify makes a job send notices of the events to a URL.
func notify(url string, events ...domain.Event) option {
	return func(d *domain.Definition) { d.Notify = append(d.Notify, domain.Notify{On: events, URL: url}) }
}
