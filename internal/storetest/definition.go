package storetest

import (
	"time"

	"punctual/scheduler/domain"
)

// Began is when the tests began.
var Began = time.Now().Truncate(time.Second)

// Option changes a definition.
type Option = func(*domain.Definition)

// Definition returns the definition of an hourly job. Its slots are half an hour away from the beginning of the tests,
// so no slot becomes due during a test, whatever the time of day. The options change the definition.
func Definition(name string, options ...Option) domain.Definition {
	d := domain.Definition{
		Name: name, Target: domain.Target{URL: "https://example.com/hook"}, Jitter: domain.Duration{},
	}
	d.Schedule.Every = domain.DurationOf(time.Hour)
	d.Schedule.StartsAt = domain.InstantOf(Began.Add(-1000*time.Hour - 30*time.Minute))
	for _, o := range options {
		o(&d)
	}
	return d
}

// Every gives a job an interval.
func Every(period time.Duration) Option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Every: domain.DurationOf(period)}
	}
}

// At gives a job one instant.
func At(t time.Time) Option {
	return func(d *domain.Definition) { d.Schedule = domain.Schedule{At: domain.InstantOf(t)} }
}

// Delay gives a job one slot, a while after its creation.
func Delay(span time.Duration) Option {
	return func(d *domain.Definition) {
		d.Schedule = domain.Schedule{Delay: domain.DurationOf(span)}
	}
}

// Never leaves a job without a schedule.
func Never(d *domain.Definition) { d.Schedule = domain.Schedule{} }

// HalfPast gives a job an hourly schedule whose nearest slots are half an hour from now, whatever the time of day.
func HalfPast(d *domain.Definition) {
	Every(time.Hour)(d)
	d.Schedule.StartsAt = domain.InstantOf(time.Now().Truncate(time.Second).Add(-1000*time.Hour - 30*time.Minute))
}

// Rarely gives a job a slot every 366 days, so that no slot comes between the slots that a test sets.
func Rarely(d *domain.Definition) { Every(366 * 24 * time.Hour)(d) }

// Missed sets the policy for missed slots.
func Missed(policy domain.MissedPolicy) Option {
	return func(d *domain.Definition) { d.Missed.Policy = policy }
}

// AllMissed lets all missed slots run, side by side.
func AllMissed(d *domain.Definition) {
	d.Missed.Policy, d.Missed.Concurrency = domain.MissedFireAll, domain.MissedAllow
}

// Window sets how old a missed slot may be and still run.
func Window(span time.Duration) Option {
	return func(d *domain.Definition) { d.Missed.Window = domain.DurationOf(span) }
}

// Tolerating sets how late a slot may be before it counts as missed.
func Tolerating(span time.Duration) Option {
	return func(d *domain.Definition) { d.Missed.Tolerance = domain.DurationOf(span) }
}

// Tolerant makes every slot of an hourly job count as missed, except the newest.
func Tolerant(d *domain.Definition) { Tolerating(time.Hour)(d) }

// Expiring sets when a run that has not started expires.
func Expiring(after time.Duration) Option {
	return func(d *domain.Definition) { d.ExpiresAfter = domain.DurationOf(after) }
}

// Overlapping sets the concurrency policy.
func Overlapping(p domain.ConcurrencyPolicy) Option {
	return func(d *domain.Definition) { d.ConcurrencyPolicy = p }
}

// Forbid skips slots while a run is in flight.
func Forbid(d *domain.Definition) { d.ConcurrencyPolicy = domain.PolicyForbid }

// Replacing cancels the run in flight when a slot comes.
func Replacing(d *domain.Definition) { d.ConcurrencyPolicy = domain.PolicyReplace }

// Described sets the description.
func Described(text string) Option {
	return func(d *domain.Definition) { d.Description = text }
}

// Labelled gives a job one label.
func Labelled(key, value string) Option {
	return func(d *domain.Definition) { d.Labels = map[string]string{key: value} }
}

// ByCallback gives a job asynchronous completion: its target works on after a 202.
func ByCallback(d *domain.Definition) {
	d.Completion = domain.CompleteAsync
	d.HeartbeatTimeout, d.MaxDuration = domain.DurationOf(time.Minute), domain.DurationOf(time.Hour)
}

// Notify makes a job send notices of the events to a URL.
func Notify(url string, events ...domain.Event) Option {
	return func(d *domain.Definition) { d.Notify = append(d.Notify, domain.Notify{On: events, URL: url}) }
}
