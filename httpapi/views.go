package httpapi

import (
	"fmt"
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/links"
	"punctual/store/runs"
)

// Job is a job as the API shows it: its definition with every default filled in, and its state.
type Job struct {
	ID      uuid.UUID       `json:"id" format:"uuid" doc:"Never reused." example:"019a3c5e-7d10-7c3e-9a44-0c6d5f0e8b11"`
	Tenant  string          `json:"tenant" doc:"Its owner." example:"default"`
	Version int32           `json:"version" doc:"Number of the current version: one more with each change. Part of the ETag." example:"7"`
	State   domain.JobState `json:"state" enum:"active,paused,completed" doc:"completed: no slot is left." example:"active"`
	jobspec.Definition
	NotifyFrom       string     `json:"notify_from" enum:"job,tenant" doc:"Where the recipients of the job's notices are set. job: in its own notify, which may be an empty list; tenant: in the tenant's default, shown by GET /v1/tenant." example:"job"`
	Paused           bool       `json:"paused" doc:"Whether it is paused." example:"false"`
	PausedAt         *time.Time `json:"paused_at,omitempty" doc:"When it was paused."`
	PausedUntil      *time.Time `json:"paused_until,omitempty" doc:"When it resumes by itself."`
	PausedBy         string     `json:"paused_by,omitempty" doc:"Who paused it." example:"key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)"`
	PauseNote        string     `json:"pause_note,omitempty" doc:"Why it was paused."`
	ScheduleWords    string     `json:"schedule_words,omitempty" doc:"A cron expression in words. Only when a single job is shown." example:"Mon–Fri 03:00"`
	Warnings         []string   `json:"warnings,omitempty" doc:"Where other systems read the schedule otherwise, and what may be a mistake in it. Only when a single job is shown."`
	Frozen           *Frozen    `json:"frozen,omitempty" doc:"The freeze that stops the claims of its slots and runs now. Only when a single job is read."`
	NextRunAt        *time.Time `json:"next_run_at" doc:"When the next slot is due: the slot plus the job's jitter. Null: there is none."`
	NextScheduledFor *time.Time `json:"next_scheduled_for" doc:"The next slot."`
	NextLocal        *string    `json:"next_local" doc:"The next slot of a schedule of local times, cron or at, in its time zone." example:"2026-12-01T03:00:00-08:00"`
	LastRun          *runs.Run  `json:"last_run" doc:"The newest run or recorded skip, without its attempts."`
	CreatedAt        time.Time  `json:"created_at" doc:"When it was first written."`
	UpdatedAt        time.Time  `json:"updated_at" doc:"When a user last changed it."`
	CompletedAt      *time.Time `json:"completed_at,omitempty" doc:"When its last slot was claimed. Absent also for a one-shot whose run is no longer kept."`

	FailingSince     *time.Time `json:"failing_since,omitempty" doc:"Since when its attempts fail. This and the next two are kept of jobs with recipients for such notices; absent: it is not so."`
	StaleSince       *time.Time `json:"stale_since,omitempty" doc:"If it has had no success for expect_success_within: since when."`
	OverlappingSince *time.Time `json:"overlapping_since,omitempty" doc:"Since when most of its slots are skipped, because the run before has not ended."`

	Upstreams   []links.Upstream `json:"upstreams,omitempty" doc:"The jobs whose runs trigger it. Only when a single job is shown. Absent: none."`
	BrokenLinks []uuid.UUID      `json:"broken_links,omitempty" doc:"Deleted jobs in then. Absent: none."`

	SkippedWhilePaused *runs.SkippedRange `json:"skipped_while_paused,omitempty" doc:"The slots that passed while the job was paused, and were skipped. Only in the answer to a request that ended the pause, if there are any. A backfill makes up for them."`
}

// MakeUp is the backfill that makes up for skipped slots.
func MakeUp(s runs.SkippedRange) BackfillInput {
	// The end is not included, and slots are whole seconds.
	return BackfillInput{From: s.First.Format(time.RFC3339), To: s.Last.Add(time.Second).Format(time.RFC3339)}
}

// SkippedWords says which slots passed while a job was paused.
func SkippedWords(s runs.SkippedRange) string {
	first := s.First.Format(time.RFC3339)
	switch {
	case s.Count == nil:
		return fmt.Sprintf("more than 1,000 slots passed while it was paused (first %s, last %s)",
			first, s.Last.Format(time.RFC3339))
	case *s.Count == 1:
		return fmt.Sprintf("1 slot passed while it was paused (%s)", first)
	}
	return fmt.Sprintf("%d slots passed while it was paused (first %s, last %s)",
		*s.Count, first, s.Last.Format(time.RFC3339))
}

// showJob shows a job. The default jitter, which belongs to the deployment, is filled in like the other defaults.
func showJob(r jobs.Record, defaultJitter time.Duration) Job {
	job := Job{
		ID: r.ID, Tenant: r.Tenant, Version: r.Version, State: r.State, Definition: r.Definition.Masked().WithDefaults(),
		Paused: r.State == domain.JobPaused, NextRunAt: utc(r.NextRunAt), NextScheduledFor: utc(r.NextScheduledFor),
		CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC(), CompletedAt: utc(r.CompletedAt), LastRun: r.LastRun,
		FailingSince: utc(r.FailingSince), StaleSince: utc(r.StaleSince), OverlappingSince: utc(r.OverlappingSince),
		Upstreams: r.Upstreams, BrokenLinks: r.Broken,
	}
	job.NotifyFrom = "tenant"
	if r.Definition.Notify != nil {
		job.NotifyFrom = "job"
	}
	job.Jitter = job.EffectiveJitter(defaultJitter)
	if job.Paused {
		job.PausedAt, job.PausedUntil, job.PausedBy = utc(r.PausedAt), utc(r.PausedUntil), r.PausedBy
		job.PauseNote = r.PauseNote
	}
	schedule := r.Definition.Schedule
	if r.NextScheduledFor != nil && (schedule.Kind() == jobspec.KindCron || schedule.Timezone != "") {
		job.NextLocal = new(inZone(*r.NextScheduledFor, schedule))
	}
	return job
}

// showOne shows a job by itself, with what its schedule means.
func showOne(r jobs.Record, defaultJitter time.Duration) Job {
	job := showJob(r, defaultJitter)
	job.ScheduleWords, job.Warnings = meaning(r.Definition.Schedule, r.State == domain.JobCompleted)
	if warning := staleByItself(r.Definition); warning != "" {
		job.Warnings = append(job.Warnings, warning)
	}
	return job
}

// meaning says what a valid schedule means, if it is a cron expression, and what may be a mistake in it.
func meaning(s jobspec.Schedule, ended bool) (words string, warnings []string) {
	if s.Kind() == jobspec.KindCron {
		words, _ = cron.Words(s.Cron)                   // it is valid
		warnings, _ = cron.Warnings(s.Cron, s.Timezone) // it is valid
	}
	if ended && s.Kind().Recurring() {
		warnings = append(warnings, "no slot is left: see ends_at")
	}
	return words, warnings
}

// showRequest shows the request that the attempts of a run send; nil where it is not known.
func showRequest(r runs.Run, origin domain.Origin) *domain.SentRequest {
	if r.Sent == nil {
		return nil
	}
	var at time.Time
	if r.Status.Final() && r.StartedAt != nil { // until then StartedAt is when the attempt was claimed
		at = *r.StartedAt
	}
	return new(r.Sent.Sent(origin, at))
}

// inZone formats an instant as local time in a schedule's zone.
func inZone(t time.Time, s jobspec.Schedule) string {
	zone, err := cron.LoadZone(s.Timezone)
	if s.Timezone == "" || err != nil { // this binary may lack a zone that was known when the job was written
		zone = time.UTC
	}
	return t.In(zone).Format(time.RFC3339)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}
