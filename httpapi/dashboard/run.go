package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/delivery/wire"
	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// runView is the page of a run.
type runView struct {
	Run      runs.Run
	Sentence template.HTML
	Timeline []entry
	Flow     *flowView        // of a workflow's run
	Waiting  []runs.StepState // steps that wait for approval, or the run itself
	Others   []runs.Run       // of the same slot: replays, reruns and skips
	Caused   []runs.Run       // by its end
	Event    string           // that caused it; empty: none did, or it is not known
	Zone     string           // of the job's schedule; empty: the job is deleted
	Again    rerunForm
	mistakes // why it was not made again
}

// rerunForm is what a run that is made again sends in place of what the run sent. Empty: the same.
type rerunForm struct {
	Headers, Body string
	SameKey       bool
	Chain         bool
}

// rerunFields are the fields beside which the form shows what is wrong.
var rerunFields = []string{"headers", "body"}

// Curl returns the command that sends the request of the run once more, with what is masked left masked.
func (r runView) Curl() string {
	request := r.Run.Request
	to, connect := calledAs(request.URL, request.Headers["Host"])
	lines := append([]string{"curl -X " + request.Method + " " + quoted(to)}, connect...)
	for _, name := range slices.Sorted(maps.Keys(request.Headers)) {
		if name == "Host" {
			continue
		}
		lines = append(lines, "-H "+quoted(name+": "+request.Headers[name]))
	}
	if len(request.Body) > 0 {
		lines = append(lines, "--data-binary "+quoted(unquoted(request.Body)))
	}
	return strings.Join(lines, nextLine)
}

// calledAs returns the URL under which curl calls a target by another host than that of its own URL, and the option by
// which it connects there all the same.
func calledAs(raw, host string) (to string, connect []string) {
	u, err := url.Parse(raw)
	if host == "" || err != nil {
		return raw, nil
	}
	connect = []string{"--connect-to " + quoted("::"+net.JoinHostPort(u.Hostname(), wire.PortOf(u)))}
	u.Host = host
	return u.String(), connect
}

// unquoted returns a value of JSON, and a string as its text: a body that is no JSON is a string in the API.
func unquoted(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	return string(raw)
}

// Told returns the error of the run, unless the page says it already.
func (r runView) Told() string {
	said := causeOf(r.Run.Reason, r.Run.HTTPStatus, r.Run.Error)
	if r.Run.HTTPStatus == nil {
		said = spelled(text(r.Run.Error))
	}
	if strings.Contains(sentence(r.Run), strings.TrimPrefix(said, text(r.Run.HTTPStatus))) {
		return ""
	}
	return text(r.Run.Error)
}

// entry is a moment in the life of a run.
type entry struct {
	At    time.Time
	Label string
	Text  string
	After string // how long after the one before
	Kind  string // good, bad or plain
	Try   *runs.Attempt
}

func (v *visit) run() error {
	view, err := v.viewRun()
	return v.shows(err, "run", view.title(), view)
}

// title names the run: that of a step by its step.
func (r runView) title() string {
	if r.Run.Step != "" {
		return "Step " + r.Run.Step + " of " + r.Run.Job
	}
	return "Run of " + r.Run.Job
}

// viewRun reads the run that a path is about.
func (v *visit) viewRun() (view runView, err error) {
	run, err := call(v, client.Run, nil, v.part("run"))
	if err != nil {
		return view, err
	}
	view = runView{Run: run, Timeline: historyOf(run), Flow: flowOf(run), Waiting: waitingOf(run)}
	if view.Flow != nil && run.Status.Final() && v.may(auth.RoleEditor) {
		view.Flow.Rerun = "/runs/" + run.ID.String() + "/rerun"
	}
	if run.Request != nil {
		view.Event = run.Request.Headers["Punctual-Event"]
	}
	told, err := v.told(run)
	if err != nil {
		return view, err
	}
	view.Timeline = append(view.Timeline, told...)
	if job, err := call(v, client.Job, nil, run.JobID.String()); err == nil {
		view.Zone = zoneOf(job.Schedule)
		v.zoneOfJob = view.Zone
	}
	view.Sentence = toldToPeople(sentence(run), view.Zone)
	list, err := call(v, client.Runs, url.Values{
		"job_id": {run.JobID.String()}, "view": {"summary"}, "limit": {"20"},
		"from": {run.ScheduledFor.Format(time.RFC3339Nano)},
		"to":   {run.ScheduledFor.Add(time.Microsecond).Format(time.RFC3339Nano)},
	})
	if err != nil {
		return view, err
	}
	if run.Status.Final() {
		caused, err := call(v, client.Runs, url.Values{
			"caused_by": {run.ID.String()}, "view": {"summary"}, "limit": {"20"},
		})
		if err != nil {
			return view, err
		}
		view.Caused = caused.Data
	}
	view.Others = slices.DeleteFunc(list.Data, func(r runs.Run) bool { return r.ID == run.ID })
	return view, nil
}

// historyOf lists what happened to a run, in order.
func historyOf(r runs.Run) []entry {
	all := []entry{{At: r.ScheduledFor, Label: "slot"}}
	switch {
	case r.ReplayOf != nil || r.RerunOf != nil:
		all[0].Text = "of the run that this one makes again"
	case r.Key != nil:
		all[0].Label = "due"
	case r.Trigger == domain.TriggerManual:
		all[0].Label = "requested"
	case r.CausedBy != nil:
		all[0].Label = "caused"
	case r.Trigger == domain.TriggerBackfill:
		all[0].Text = "filled in later"
	case !r.DueAt.Equal(r.ScheduledFor):
		all = append(all, entry{At: r.DueAt, Label: "due", Text: "the slot plus the job's jitter"})
	}
	all = append(all, entry{At: r.CreatedAt, Label: "recorded"})
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Number == r.Attempt && r.ClaimedAt != nil && r.ClaimedAt.Before(a.StartedAt) {
			all = append(all, entry{At: *r.ClaimedAt, Label: "claimed"})
		}
		begin := entry{At: a.StartedAt, Label: "sent", Text: fmt.Sprintf("attempt %d", a.Number)}
		if r.Steps != nil || r.Step != "" && r.Request == nil {
			begin.Label, begin.Text = "started", ""
		}
		all = append(all, begin)
		if a.FinishedAt != nil {
			end := entry{At: *a.FinishedAt, Label: string(a.Outcome), Kind: "bad", Try: a}
			if end.Text = causeOf(a.Reason, a.HTTPStatus, a.Error); a.Outcome == domain.AttemptSucceeded {
				end.Kind = "good"
			}
			all = append(all, end)
		}
	}
	if r.FinishedAt != nil && r.Status != domain.StatusSucceeded {
		end := entry{At: *r.FinishedAt, Label: string(r.Status), Text: reasonWords(r.Reason), Kind: "bad"}
		if n := len(r.Attempts); n > 0 && text(r.Attempts[n-1].Reason) == text(r.Reason) {
			end.Text = "" // the attempt says it
		}
		all = append(all, end)
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.At.Compare(b.At) })
	for i := range all[1:] {
		if after := all[i+1].At.Sub(all[i].At); after >= time.Millisecond {
			all[i+1].After = "+" + length(after)
		}
	}
	return all
}

// runsView is the list of runs.
type runsView struct {
	Runs    []runs.Run
	Next    string
	Filter  url.Values
	Zone    *time.Location   // of the visitor
	Problem *problem.Problem // with the filter
}

// Wall returns an instant of the filter as a field for a date and a time holds it, in the visitor's zone. It is empty
// where the field cannot hold it: the hour comes twice, or it is no time.
func (r runsView) Wall(name string) string {
	at, err := time.Parse(time.RFC3339, r.Filter.Get(name))
	if err != nil || twice(at.In(r.Zone)) {
		return ""
	}
	return at.In(r.Zone).Format("2006-01-02T15:04:05.999999")
}

// Fields are the parameters of the filter that have fields.
func (r runsView) Fields() []string {
	fields := []string{"job", "status", "reason"}
	for _, name := range []string{"from", "to"} {
		if r.Filter.Get(name) == "" || r.Wall(name) != "" {
			fields = append(fields, name)
		}
	}
	return fields
}

func (v *visit) runs() error {
	query := v.filters([]string{"zone", "view", "limit"},
		"status", "reason", "trigger", "late", "label", "job", "job_id", "from", "to", "cursor")
	for _, name := range []string{"from", "to"} {
		if text := query.Get(name); text != "" {
			query.Set(name, instantIn(text, v.located(v.param)))
		}
	}
	query.Set("view", "summary")
	query.Set("limit", shownRuns)
	view := runsView{Filter: query, Zone: v.located(func(string) string { return "" })}
	list, err := call(v, client.Runs, query)
	view.Problem, err = refused(err)
	view.Runs, view.Next = list.Data, text(list.NextCursor)
	return v.shows(err, "runs", "Runs", view)
}

func (v *visit) cancelRun() error {
	run, err := call(v, client.CancelRun, nil, v.part("run"))
	to := "/runs/" + run.ID.String()
	if err == nil {
		if _, gone := call(v, client.Run, nil, run.ID.String()); gone != nil { // a dated run was pending
			to = "/jobs/" + run.JobID.String()
		}
	}
	return v.done(err, to, "The run is being cancelled.")
}

func (v *visit) rerunRun() error {
	body, headers := v.replacements()
	form := rerunForm{
		Headers: v.field("headers"), Body: v.field("body"),
		SameKey: v.field("same_key") != "", Chain: v.field("chain") != "",
	}
	run, err := call(v, client.RerunRun, httpapi.RerunInput{
		Body: body, Headers: headers, SameKey: form.SameKey, Chain: form.Chain,
		From: v.r.PostForm["from"], Definition: v.field("definition"),
	}, v.part("run"))
	if err == nil {
		return v.to("/runs/"+run.ID.String(), "The run was made again.")
	}
	said, err := refused(err)
	if err != nil {
		return err
	}
	view, err := v.viewRun()
	if err != nil {
		return err
	}
	view.Again, view.mistakes = form, mistakes{said, rerunFields}
	return v.render(said.Status, "run", view.title(), view)
}
