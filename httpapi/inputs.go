package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// JobInput is the body that creates or replaces a job: a definition, and whether the job starts paused.
type JobInput struct {
	jobspec.Definition
	Paused *bool `json:"paused,omitempty" doc:"Whether it is paused. Absent: active when new, unchanged when replaced." example:"false"`
}

// SetByServer says why a request may not set the fields that only Job has.
func (JobInput) SetByServer(field string) (why string, is bool) {
	if field == "state" {
		return `unknown field: it is set by the server; ` +
			`to pause a job write "paused": true, or POST /v1/jobs/{job}/pause`, true
	}
	return body.LeaveOut, slices.Contains(onlyInJob(), field)
}

var onlyInJob = sync.OnceValue(func() []string {
	fields := maps.Clone(body.Schema(reflect.TypeFor[Job]()).Properties)
	for name := range body.Schema(reflect.TypeFor[JobInput]()).Properties {
		delete(fields, name)
	}
	return slices.Sorted(maps.Keys(fields))
})

// JobReplacement is the body of a PUT: a JobInput, or a job as a GET returned it. Fields that the server sets are
// ignored then, and the mask of a secret keeps the secret that is stored in its place.
type JobReplacement struct{ JobInput }

// SetByServer ignores these fields: a PUT takes back what a GET returned.
func (JobReplacement) SetByServer(field string) (why string, is bool) {
	return "", slices.Contains(onlyInJob(), field)
}

func (j JobInput) newJob() jobs.NewJob {
	return jobs.NewJob{Definition: j.Definition, Paused: j.Paused}
}

func (j JobReplacement) newJob() jobs.NewJob {
	keepMasked(&j.Definition)
	return j.JobInput.newJob()
}

// keepMasked keeps the stored secrets in whose place a definition has the mask.
func keepMasked(d *jobspec.Definition) {
	d.EachHidden(func(_ string, h *jobspec.Hidden) {
		if h.Value() == jobspec.Mask {
			*h = jobspec.KeptSecret()
		}
	})
}

// BatchInput is the body that writes many jobs at once.
type BatchInput struct {
	Jobs       []JobInput      `json:"jobs" minItems:"1" maxItems:"1000" doc:"The jobs. Their names must differ."`
	OnConflict jobs.OnConflict `json:"on_conflict,omitempty" minLength:"1" enum:"error,replace,skip" default:"error" doc:"The treatment of a job whose name is taken. error: nothing is written; replace: the job is replaced, as by PUT; skip: the existing job stays as it is."`
}

// validate returns what is wrong with the jobs and with on_conflict.
func (b BatchInput) validate() []problem.FieldError {
	var errors []problem.FieldError
	if len(b.Jobs) == 0 {
		errors = append(errors, problem.At("body.jobs", "must hold 1 to 1000 jobs"))
	}
	errors = append(errors,
		oneOf("body.on_conflict", b.OnConflict, jobs.ConflictError, jobs.ConflictReplace, jobs.ConflictSkip)...)
	first := make(map[string]int, len(b.Jobs))
	for i, job := range b.Jobs {
		at := fmt.Sprintf("body.jobs[%d]", i)
		errors = append(errors, api.Within(at, job.Validate())...)
		if other, ok := first[job.Name]; ok && job.Name != "" {
			errors = append(errors, problem.Atf(at+".name", "is also the name of jobs[%d]", other))
			continue
		}
		first[job.Name] = i
	}
	return errors
}

// PauseInput is the optional body of a pause.
type PauseInput struct {
	Note  string          `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read. Absent: none." example:"the warehouse moves"`
	Until jobspec.Instant `json:"until,omitzero" doc:"When it resumes by itself. Slots from that instant on are ordinary slots, even if no replica was alive then. Absent: it stays paused until a caller resumes it." example:"2026-12-01T09:00:00Z"`
}

func (p PauseInput) validate() []problem.FieldError {
	return append(instant("body.until", p.Until), note(p.Note)...)
}

// ResumeInput is the optional body of a resume.
type ResumeInput struct {
	Note string `json:"note,omitempty" maxLength:"1024" doc:"The reason, for people to read. Absent: none." example:"it has moved"`
}

// maxNote bounds notes, in bytes.
const maxNote = 1024

func note(text string) []problem.FieldError { return prose("body.note", text, maxNote) }

// prose returns what is wrong with a text for people, of which the database keeps so many bytes at most.
func prose(at, text string, most int) []problem.FieldError {
	if len(text) > most {
		return []problem.FieldError{problem.Atf(at, "%d bytes; at most %d", len(text), most)}
	}
	return noNUL(at, text)
}

// noNUL returns what is wrong with a text that the database cannot take.
func noNUL(at, text string) []problem.FieldError {
	if strings.ContainsRune(text, 0) {
		return []problem.FieldError{problem.At(at, "must not hold NUL characters")}
	}
	return nil
}

// soughtLabels returns what is wrong with labels that are searched for.
func soughtLabels(at string, labels map[string]string) (errors []problem.FieldError) {
	for name, value := range labels {
		errors = append(errors, noNUL(at, name+value)...)
	}
	return errors
}

// oneOf returns what is wrong with a word, if there is one.
func oneOf[T ~string](at string, word T, known ...T) []problem.FieldError {
	if word == "" || slices.Contains(known, word) {
		return nil
	}
	return []problem.FieldError{problem.At(at, api.NotOneOf(string(word), known))}
}

// upTo returns what is wrong with a number that must be 1 to most, if there is one.
func upTo(at string, n *int, most int) []problem.FieldError {
	if n != nil && (*n < 1 || *n > most) {
		return []problem.FieldError{problem.Atf(at, "%d is outside 1 to %d", *n, most)}
	}
	return nil
}

// or returns a value, or its default if it is absent.
func or[T any](value *T, absent T) T {
	if value == nil {
		return absent
	}
	return *value
}

// orNil returns an instant; nil: it is absent.
func orNil(i jobspec.Instant) *time.Time {
	if i.IsZero() {
		return nil
	}
	return new(i.Value())
}

// optionalID reads an id of the query; nil: it is absent.
func optionalID(at, text, want string) (*uuid.UUID, error) {
	if text == "" {
		return nil, nil
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return nil, problem.Invalid(problem.At(at, want))
	}
	return &id, nil
}

// TriggerInput is the optional body of a trigger.
type TriggerInput struct {
	DatedInput
	Body    json.RawMessage   `json:"body,omitempty" doc:"Replaces the body of the job's target for this run. It has the same form, but nothing in it is filled in: it is data. GET sends it, too. At most 64 levels deep. Of a job with steps: what they are sent as input. Absent: the body of the job's target; of a job with steps, none."`
	Headers map[string]string `json:"headers,omitempty" doc:"Replaces the headers of the job's target for this run. Nothing in them is filled in. Not for a job with steps. Absent: the headers of the job's target."`
}

// PreviewInput is the body of a preview.
type PreviewInput struct {
	Schedule jobspec.Schedule `json:"schedule" doc:"As in a job."`
	Dialect  string           `json:"dialect,omitempty" minLength:"1" enum:"quartz,spring,kubernetes,aws" doc:"The system whose form schedule.cron has; the answer has the schedule that means the same here. aws: EventBridge's, rate(5 minutes) and at(2027-01-01T09:00:00) too. Absent: ours." example:"quartz"`
	From     jobspec.Instant  `json:"from,omitzero" doc:"Only slots after this instant. Absent: now." example:"2026-10-24T00:00:00Z"`
	N        *int             `json:"n,omitempty" minimum:"1" maximum:"100" default:"5" doc:"How many slots."`
}

const (
	defaultSlots = 5
	mostSlots    = 100
)

// validate checks the preview, with its schedule as it is here.
func (p *PreviewInput) validate() []problem.FieldError {
	var errors []problem.FieldError
	if p.Dialect != "" {
		if !slices.Contains(cron.Dialects, p.Dialect) {
			return []problem.FieldError{problem.At("body.dialect", "want one of "+strings.Join(cron.Dialects, ", "))}
		}
		ours, err := p.Schedule.Translate(p.Dialect)
		if err != nil {
			return []problem.FieldError{problem.At("body.schedule.cron", err.Error())}
		}
		p.Schedule = ours
	}
	for _, wrong := range p.Schedule.Validate() {
		at := "body.schedule"
		if wrong.Field != "schedule" { // "schedule" is the schedule as a whole
			at += "." + wrong.Field
		}
		errors = append(errors, problem.At(at, wrong.Message))
	}
	return slices.Concat(errors, instant("body.from", p.From), upTo("body.n", p.N, mostSlots))
}

// instant returns what is wrong with an instant, by the rules for instants in definitions.
func instant(at string, i jobspec.Instant) []problem.FieldError {
	var errors []problem.FieldError
	for _, p := range (jobspec.Schedule{At: i}).Validate() {
		errors = append(errors, problem.At(at, p.Message))
	}
	return errors
}
