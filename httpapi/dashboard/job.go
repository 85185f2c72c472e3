package dashboard

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/jobs"
	"punctual/store/letters"
	"punctual/store/runs"
)

// jobView is the page of a job.
type jobView struct {
	Job       httpapi.Job
	Upcoming  []httpapi.UpcomingSlot
	Dated     []jobs.DatedRun // pending, the soonest first
	MoreDated bool
	Stats     runs.JobStats
	Runs      []runs.Run // newest first
	Next      string     // cursor of older runs
	Explained *history.Explanation
	At        string             // the time that was asked about, as it was written
	Asked     time.Time          // as it was understood
	Last      *time.Time         // the last slot
	Passed    *runs.SkippedRange // slots that a pause swallowed in the last days, and that were not made up for
	Nearest   *time.Time         // to an instant at which there was none
	Problem   *problem.Problem   // with that instant
	Unread    string             // what could not be read in time
}

// Zone is the zone of the job's schedule.
func (j jobView) Zone() string { return zoneOf(j.Job.Schedule) }

// MayTrigger reports whether a visitor may trigger the job, and cancel its dated runs.
func (j jobView) MayTrigger(editor, submitter bool) bool {
	return editor || submitter && j.Job.SubmittersMayTrigger != nil && *j.Job.SubmittersMayTrigger
}

// shownRuns is how many outcomes the strip of a job shows.
const shownRuns = "100"

// without notes what could not be read in time. It returns any other error.
func (j *jobView) without(what string, err error) error {
	if !errors.Is(err, errUnread) {
		return err
	}
	j.Unread = what
	return nil
}

func (v *visit) job(job httpapi.Job) error {
	view := jobView{Job: job, At: strings.TrimSpace(v.param("at"))}
	id := job.ID.String()
	upcoming, err := call(v, client.Upcoming, nil, id)
	if err != nil {
		return err
	}
	view.Upcoming = upcoming.Slots
	view.Stats, err = optional(v, client.JobStats, nil, id)
	if err = view.without("The figures of its runs", err); err != nil {
		return err
	}
	dated, err := call(v, client.DatedRuns, nil, id)
	if err != nil {
		return err
	}
	view.Dated, view.MoreDated = dated.Data, dated.NextCursor != nil
	query := v.filters([]string{"at", "zone"}, "cursor", "status", "reason")
	query.Set("limit", shownRuns)
	query.Set("view", "summary")
	list, err := optional(v, client.JobRuns, query, id)
	if err = view.without("Its runs", err); err != nil {
		return err
	}
	view.Runs, view.Next = list.Data, text(list.NextCursor)
	for _, r := range view.Runs {
		if r.Trigger == domain.TriggerSchedule {
			view.Last = &r.ScheduledFor
			break
		}
	}
	if view.Passed, err = v.passed(view.Runs, view.Stats.From.AddDate(0, 0, -1)); err != nil {
		return err
	}
	if view.At != "" {
		err = v.explain(&view)
	}
	return v.shows(err, "job", job.Name, view)
}

// passed returns the slots that the newest pause swallowed, if it ended since then and none of them was made up for.
// The runs are the newest first, and summaries.
func (v *visit) passed(newest []runs.Run, since time.Time) (*runs.SkippedRange, error) {
	i := slices.IndexFunc(newest, func(r runs.Run) bool { return r.Reason != nil && *r.Reason == domain.ReasonPaused })
	if i < 0 {
		return nil, nil
	}
	skip, err := call(v, client.Run, nil, newest[i].ID.String())
	s := skip.Skipped
	if err != nil || s == nil || skip.CreatedAt.Before(since) ||
		slices.ContainsFunc(newest, func(o runs.Run) bool {
			return o.Trigger == domain.TriggerBackfill && !o.ScheduledFor.Before(s.First) && !o.ScheduledFor.After(s.Last)
		}) {
		return nil, err
	}
	return s, nil
}

// backfillPath is the form of the backfill that makes up for skipped slots of a job.
func backfillPath(job string, s runs.SkippedRange) string {
	again := httpapi.MakeUp(s)
	return job + "/backfill?" + url.Values{"from": {again.From}, "to": {again.To}}.Encode()
}

// jobPath is the page of the job that a path is about.
func (v *visit) jobPath() string { return "/jobs/" + url.PathEscape(v.part("job")) }

func (v *visit) pauseJob() error {
	in := httpapi.PauseInput{Note: v.field("note"), Until: v.instant("until")}
	_, err := call(v, client.PauseJob, in, v.part("job"))
	return v.done(err, v.jobPath(), "The job is paused.")
}

func (v *visit) resumeJob() error {
	job, err := call(v, client.ResumeJob, httpapi.ResumeInput{Note: v.field("note")}, v.part("job"))
	passed := job.SkippedWhilePaused
	if err != nil || passed == nil {
		return v.done(err, v.jobPath(), "The job is active again.")
	}
	return v.to(v.jobPath(), "The job is active again: "+httpapi.SkippedWords(*passed)+".\n"+
		backfillPath(v.jobPath(), *passed))
}

func (v *visit) triggerJob() error {
	body, headers := v.replacements()
	run, err := call(v, client.TriggerJob, httpapi.TriggerInput{Body: body, Headers: headers}, v.part("job"))
	return v.done(err, "/runs/"+run.ID.String(), "The run was created.")
}

func (v *visit) moveDated() error {
	key := v.r.PostFormValue("key") // with its spaces
	_, err := call(v, client.MoveDated, httpapi.MoveInput{At: v.instant("at")}, v.part("job"), key)
	return v.done(err, v.jobPath(), "The pending run "+key+" is moved.")
}

func (v *visit) cancelDated() error {
	key := v.r.PostFormValue("key") // with its spaces
	_, err := call(v, client.CancelDated, nil, v.part("job"), key)
	return v.done(err, v.jobPath(), "The pending run "+key+" is cancelled.")
}

// replacements returns the body and the headers that a run by hand sends in place of the job's; nil: the job's.
func (v *visit) replacements() (body json.RawMessage, headers map[string]string) {
	if text := v.field("body"); text != "" {
		body = client.BodyOf([]byte(text))
	}
	if text := v.field("headers"); text != "" {
		headers = pairs(text, ":")
	}
	return body, headers
}

func (v *visit) deleteJob() error {
	force := url.Values{"force": {strconv.FormatBool(v.field("force") != "")}}
	_, err := call(v, client.DeleteJob, force, v.part("job"))
	return v.done(err, "/jobs", "The job is deleted. Its history stays.")
}

// backfillView asks for runs of past slots: first it counts them.
type backfillView struct {
	Job      httpapi.Job
	From, To string // as they were written
	Zone     string // of From and To
	In       httpapi.BackfillInput
	Count    *httpapi.BackfillCount
	Problem  *problem.Problem
}

func (v *visit) backfill(job httpapi.Job) error {
	if err := v.needs(auth.RoleEditor, "Filling in past slots"); err != nil {
		return err
	}
	view := backfillView{
		Job: job, From: v.param("from"), To: v.param("to"), Zone: v.located(v.param).String(), In: v.backfillOf(v.param),
	}
	if view.From == "" && view.To == "" {
		return v.show("backfill", "Backfill "+job.Name, view)
	}
	in := view.In
	in.DryRun = true
	n, err := call(v, client.CountBackfill, in, job.ID.String())
	if view.Problem, err = refused(err); view.Problem == nil {
		view.Count = &n
	}
	return v.shows(err, "backfill", "Backfill "+job.Name, view)
}

// backfillOf reads the form's fields. A day begins at midnight in the zone of the form.
func (v *visit) backfillOf(field func(string) string) httpapi.BackfillInput {
	bound := func(name string) string {
		text := field(name)
		if _, err := time.Parse(time.DateOnly, text); err == nil {
			text += "T00:00"
		}
		return instantIn(text, v.located(field))
	}
	in := httpapi.BackfillInput{
		From: bound("from"), To: bound("to"), Rerun: field("rerun") != "", Chain: field("chain") != "",
	}
	if field("allow") != "" {
		in.Concurrency = letters.ConcurrencyAllow
	}
	return in
}

func (v *visit) startBackfill() error {
	in := v.backfillOf(v.field)
	in.Note = v.field("note")
	started, err := call(v, client.Backfill, in, v.part("job"))
	return v.done(err, "/operations/"+started.ID.String(), "The backfill has started.")
}
