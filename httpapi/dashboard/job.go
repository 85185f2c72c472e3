package dashboard

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
	"punctual/store/history"
	"punctual/store/runs"
)

// jobView is the page of a job.
type jobView struct {
	Job       httpapi.Job
	Upcoming  []httpapi.UpcomingSlot
	Stats     runs.JobStats
	Runs      []runs.Run // newest first
	Next      string     // cursor of older runs
	Explained *history.Explanation
	At        string           // the time that was asked about, as it was written
	Asked     time.Time        // as it was understood
	Last      *time.Time       // the last slot
	Nearest   *time.Time       // to an instant at which there was none
	Problem   *problem.Problem // with that instant
}

// Zone is the zone of the job's schedule.
func (j jobView) Zone() string { return zoneOf(j.Job.Schedule) }

// shownRuns is how many outcomes the strip of a job shows.
const shownRuns = "100"

func (v *visit) job(job httpapi.Job) error {
	view := jobView{Job: job, At: strings.TrimSpace(v.param("at"))}
	id := job.ID.String()
	upcoming, err := v.api.Upcoming(v.ctx(), id, nil)
	if err != nil {
		return err
	}
	view.Upcoming = upcoming.Slots
	if view.Stats, err = v.api.JobStats(v.ctx(), id); err != nil {
		return err
	}
	query := filtered(v.r.URL.Query(), "cursor", "status", "reason")
	query.Set("limit", shownRuns)
	query.Set("view", "summary")
	list, err := v.api.JobRuns(v.ctx(), id, query)
	if err != nil {
		return err
	}
	view.Runs, view.Next = list.Data, text(list.NextCursor)
	for _, r := range view.Runs {
		if r.Trigger == domain.TriggerSchedule {
			view.Last = &r.ScheduledFor
			break
		}
	}
	if view.At != "" {
		if err := v.explain(&view); err != nil {
			return err
		}
	}
	return v.show("job", job.Name, view)
}

// changesView is what was changed in a job, and by whom.
type changesView struct {
	Job     httpapi.Job
	Changes []change
	Next    string
}

func (v *visit) changes(job httpapi.Job) error {
	view := changesView{Job: job}
	if v.may(auth.RoleAdmin) {
		query := filtered(v.r.URL.Query(), "cursor")
		query.Set("job", job.ID.String())
		query.Set("limit", "50")
		list, err := v.api.AuditLog(v.ctx(), query)
		if err != nil {
			return err
		}
		view.Changes, view.Next = changesOf(list.Data), text(list.NextCursor)
	}
	return v.show("changes", job.Name, view)
}

// jobPath is the page of the job that a path is about.
func (v *visit) jobPath() string { return "/jobs/" + url.PathEscape(v.part("job")) }

func (v *visit) pauseJob() error {
	in := httpapi.PauseInput{Note: v.field("note"), Until: v.instant("until")}
	_, err := v.api.PauseJob(v.ctx(), v.part("job"), in)
	return v.done(err, v.jobPath(), "The job is paused.")
}

func (v *visit) resumeJob() error {
	_, err := v.api.ResumeJob(v.ctx(), v.part("job"), httpapi.ResumeInput{Note: v.field("note")})
	return v.done(err, v.jobPath(), "The job is active again.")
}

func (v *visit) triggerJob() error {
	body, headers := v.replacements()
	run, err := v.api.TriggerJob(v.ctx(), v.part("job"), httpapi.TriggerInput{Body: body, Headers: headers})
	return v.done(err, "/runs/"+run.ID.String(), "The run was created.")
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
	err := v.api.DeleteJob(v.ctx(), v.part("job"))
	return v.done(err, "/jobs", "The job is deleted. Its history stays.")
}

// backfillView asks for runs of past slots: first it counts them.
type backfillView struct {
	Job      httpapi.Job
	From, To string
	Zone     string // of From and To
	Rerun    bool
	Count    *httpapi.BackfillCount
	Problem  *problem.Problem
}

func (v *visit) backfill(job httpapi.Job) error {
	if err := v.needs(auth.RoleEditor, "Filling in past slots"); err != nil {
		return err
	}
	view := backfillView{Job: job, From: v.param("from"), To: v.param("to"), Rerun: v.param("rerun") != ""}
	zone := v.located(v.param)
	view.Zone = zone.String()
	if view.From != "" || view.To != "" {
		var n httpapi.BackfillCount
		in := backfillOf(view, zone)
		in["dry_run"] = true
		_, err := v.api.Do(v.ctx(), http.MethodPost, "/v1/jobs/"+job.ID.String()+"/backfill", in, &n)
		if err == nil {
			view.Count = &n
		} else if view.Problem = problemOf(err); view.Problem.Status >= http.StatusInternalServerError {
			return err
		}
	}
	return v.show("backfill", "Backfill "+job.Name, view)
}

func backfillOf(view backfillView, zone *time.Location) map[string]any {
	in := map[string]any{"rerun": view.Rerun}
	for name, value := range map[string]string{"from": view.From, "to": view.To} {
		if value != "" {
			in[name] = instantIn(value, zone)
		}
	}
	return in
}

func (v *visit) startBackfill() error {
	in := backfillOf(backfillView{From: v.field("from"), To: v.field("to"), Rerun: v.field("rerun") != ""},
		v.located(v.field))
	if note := v.field("note"); note != "" {
		in["note"] = note
	}
	var started struct{ ID string }
	_, err := v.api.Do(v.ctx(), http.MethodPost, "/v1"+v.jobPath()+"/backfill", in, &started)
	return v.done(err, "/operations/"+started.ID, "The backfill has started.")
}
