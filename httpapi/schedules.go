package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
	"punctual/store/pg"
)

// PreviewSlot is a slot of a schedule that belongs to no job yet.
type PreviewSlot struct {
	ScheduledFor time.Time `json:"scheduled_for" doc:"The nominal fire time."`
	Local        string    `json:"local" doc:"The nominal fire time in the schedule's time zone." example:"2026-10-25T03:00:00+01:00"`
	Note         *string   `json:"note" doc:"How daylight saving affected the slot: its local time does not exist, or occurs twice. Null: not at all."`
}

// Preview is the answer to a preview.
type Preview struct {
	Schedule jobspec.Schedule `json:"schedule" doc:"The schedule as a job has it: translated, if the preview names a dialect."`
	Words    *string          `json:"words" doc:"A cron expression in words. Null: the schedule has none." example:"Mon–Fri 03:00"`
	Warnings []string         `json:"warnings" doc:"Where other systems read the schedule otherwise, and what may be a mistake in it; most schedules have none." example:"its hours are in UTC, as the schedule has no timezone"`
	Slots    []PreviewSlot    `json:"slots" doc:"The slots, in order. There are fewer than requested if the schedule ends."`
}

// UpcomingSlot is a slot of a job.
type UpcomingSlot struct {
	ScheduledFor time.Time `json:"scheduled_for" doc:"The nominal fire time."`
	NextRunAt    time.Time `json:"next_run_at" doc:"When it is due: the slot plus the job's jitter."`
	Local        string    `json:"local" doc:"The slot in the schedule's time zone." example:"2026-10-25T03:00:00+01:00"`
	Note         *string   `json:"note" doc:"How daylight saving affected the slot: its local time does not exist, or occurs twice. Null: not at all."`
}

// Upcoming lists the next slots of a job.
type Upcoming struct {
	Slots []UpcomingSlot `json:"slots" doc:"The slots, in order. There are fewer than requested if the schedule ends, and none while the job is paused."`
}

func (s *server) scheduleRoutes() {
	api.RegisterBody[PreviewInput](s.api, api.Operation{
		ID: "preview-schedule", Route: "POST /v1/schedules/preview", Role: auth.RoleViewer, Tag: tagSchedules,
		Summary: "Preview a schedule", MaxBody: api.MaxBody,
		Asks: `{"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin"},` +
			`"from":"2026-03-28T00:00:00Z","n":2}`,
		Answers:     []string{examplePreview},
		Description: "Checks the schedule in the same way as a job's schedule, and stores nothing.",
	}, api.Required, s.preview)
	api.Register(s.api, api.Operation{
		ID: "list-upcoming", Route: "GET /v1/jobs/{job}/upcoming", Role: auth.RoleViewer, Tag: tagSchedules,
		Summary: "List a job's upcoming slots",
	}, s.upcoming)
}

func (s *server) preview(ctx context.Context, _ int32, in *body.Body[PreviewInput]) (*answer[Preview], error) {
	asked := in.Value
	if err := in.Check(asked.validate()...); err != nil {
		return nil, err
	}
	from := asked.From.Value()
	if asked.From.IsZero() {
		var err error
		if from, err = s.Store.Now(ctx); err != nil {
			return nil, err
		}
	}
	definition := jobspec.Definition{Schedule: asked.Schedule}.WithDefaults()
	timetable, err := jobspec.NewTimetable(uuid.Nil, definition, 0)
	if err != nil {
		return nil, err
	}
	out := Preview{Schedule: asked.Schedule, Warnings: []string{}, Slots: []PreviewSlot{}}
	slot, ok := timetable.First(from)
	for ok && len(out.Slots) < or(asked.N, defaultSlots) {
		out.Slots = append(out.Slots, PreviewSlot{
			ScheduledFor: slot.At.UTC(), Local: inZone(slot.At, definition.Schedule), Note: pg.OrNull(slot.Note),
		})
		slot, ok = timetable.Next(slot.At, nil)
	}
	words, warnings := meaning(asked.Schedule, len(out.Slots) == 0)
	out.Words, out.Warnings = pg.OrNull(words), append(out.Warnings, warnings...)
	return &answer[Preview]{out}, nil
}

type upcomingInput struct {
	JobRef
	N int `query:"n" default:"5" minimum:"1" maximum:"100" doc:"How many slots."`
}

func (s *server) upcoming(ctx context.Context, tenant int32, in *upcomingInput) (*answer[Upcoming], error) {
	record, err := s.Store.Jobs.GetJob(ctx, tenant, in.Job)
	if err != nil {
		return nil, err
	}
	slots, err := upcomingSlots(record, s.DefaultJitter, in.N)
	return show(Upcoming{slots}, err)
}

// upcomingSlots returns the next slots of a job, starting with the next one that is stored.
func upcomingSlots(r jobs.Record, defaultJitter time.Duration, n int) ([]UpcomingSlot, error) {
	slots := []UpcomingSlot{}
	if r.NextScheduledFor == nil || r.NextRunAt == nil {
		return slots, nil
	}
	definition := r.Definition.WithDefaults()
	timetable, err := jobspec.NewTimetable(r.ID, definition, defaultJitter)
	if err != nil {
		return nil, err
	}
	next := jobspec.Slot{At: *r.NextScheduledFor}
	same, ok := timetable.Next(next.At.Add(-1), nil)
	if definition.Schedule.Kind() == jobspec.KindAt {
		same, ok = timetable.First(next.At)
	}
	if ok && same.At.Equal(next.At) {
		next = same // with its note
	}
	due := *r.NextRunAt
	ok = true
	for ok && len(slots) < n {
		slots = append(slots, UpcomingSlot{
			ScheduledFor: next.At.UTC(), NextRunAt: due.UTC(), Local: inZone(next.At, definition.Schedule),
			Note: pg.OrNull(next.Note),
		})
		if next, ok = timetable.Next(next.At, nil); ok {
			due = timetable.Due(next.At, nil)
		}
	}
	return slots, nil
}
