package storetest

import (
	"time"

	"punctual/scheduler/jobspec"
)

// Began is when the tests began.
var Began = time.Now().Truncate(time.Second)

// Option changes a definition.
type Option = func(*jobspec.Definition)

// Definition returns the definition of an hourly job. Its slots are half an hour away from the beginning of the tests,
// so no slot becomes due during a test, whatever the time of day. The options change the definition.
func Definition(name string, options ...Option) jobspec.Definition {
	d := jobspec.Definition{
		Name: name, Target: jobspec.Target{URL: "https://example.com/hook"}, Jitter: jobspec.Duration{},
	}
	d.Schedule.Every = jobspec.DurationOf(time.Hour)
	d.Schedule.StartsAt = jobspec.InstantOf(Began.Add(-1000*time.Hour - 30*time.Minute))
	for _, o := range options {
		o(&d)
	}
	return d
}

// Every gives a job an interval.
func Every(period time.Duration) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Every: jobspec.DurationOf(period)}
	}
}

// At gives a job one instant.
func At(t time.Time) Option {
	return func(d *jobspec.Definition) { d.Schedule = jobspec.Schedule{At: jobspec.InstantOf(t)} }
}

// Delay gives a job one slot, a while after its creation.
func Delay(span time.Duration) Option {
	return func(d *jobspec.Definition) {
		d.Schedule = jobspec.Schedule{Delay: jobspec.DurationOf(span)}
	}
}

// Never leaves a job without a schedule.
func Never(d *jobspec.Definition) { d.Schedule = jobspec.Schedule{} }

// HalfPast gives a job an hourly schedule whose nearest slots are half an hour from now, whatever the time of day.
func HalfPast(d *jobspec.Definition) {
	Every(time.Hour)(d)
	d.Schedule.StartsAt = jobspec.InstantOf(time.Now().Truncate(time.Second).Add(-1000*time.Hour - 30*time.Minute))
}

// Rarely gives a job a slot every 366 days, so that no slot comes between the slots that a test sets.
func Rarely(d *jobspec.Definition) { Every(366 * 24 * time.Hour)(d) }

// Missed sets the policy for missed slots.
func Missed(policy jobspec.MissedPolicy) Option {
	return func(d *jobspec.Definition) { d.Missed.Policy = policy }
}

// AllMissed lets all missed slots run, side by side.
func AllMissed(d *jobspec.Definition) {
	d.Missed.Policy, d.Missed.Concurrency = jobspec.MissedFireAll, jobspec.MissedAllow
}

// Window sets how old a missed slot may be and still run.
func Window(span time.Duration) Option {
	return func(d *jobspec.Definition) { d.Missed.Window = jobspec.DurationOf(span) }
}

// Tolerating sets how late a slot may be before it counts as missed.
func Tolerating(span time.Duration) Option {
	return func(d *jobspec.Definition) { d.Missed.Tolerance = jobspec.DurationOf(span) }
}

// Tolerant makes every slot of an hourly job count as missed, except the newest.
func Tolerant(d *jobspec.Definition) { Tolerating(time.Hour)(d) }

// Expiring sets when a run that has not started expires.
func Expiring(after time.Duration) Option {
	return func(d *jobspec.Definition) { d.ExpiresAfter = jobspec.DurationOf(after) }
}

// Overlapping sets the concurrency policy.
func Overlapping(p jobspec.ConcurrencyPolicy) Option {
	return func(d *jobspec.Definition) { d.ConcurrencyPolicy = p }
}

// Forbid skips slots while a run is in flight.
func Forbid(d *jobspec.Definition) { d.ConcurrencyPolicy = jobspec.PolicyForbid }

// Replacing cancels the run in flight when a slot comes.
func Replacing(d *jobspec.Definition) { d.ConcurrencyPolicy = jobspec.PolicyReplace }

// Described sets the description.
func Described(text string) Option {
	return func(d *jobspec.Definition) { d.Description = text }
}

// Labelled gives a job one label.
func Labelled(key, value string) Option {
	return func(d *jobspec.Definition) { d.Labels = map[string]string{key: value} }
}

// ByCallback gives a job asynchronous completion: its target works on after a 202.
func ByCallback(d *jobspec.Definition) {
	d.Completion = jobspec.CompleteAsync
	d.HeartbeatTimeout, d.MaxDuration = jobspec.DurationOf(time.Minute), jobspec.DurationOf(time.Hour)
}

// Notify makes a job send notices of the events to a URL.
func Notify(url string, events ...jobspec.Event) Option {
	return func(d *jobspec.Definition) { d.Notify = append(d.Notify, jobspec.Notify{On: events, URL: url}) }
}
