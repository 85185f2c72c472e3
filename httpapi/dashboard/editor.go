package dashboard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
)

// editorView is the page that creates or changes a job, as a form or as JSON.
type editorView struct {
	Job      *httpapi.Job // nil: it is new
	Form     jobForm
	Defaults jobForm // of the fields that are left empty
	Loaded   loaded
	Conflict *conflict // somebody else has saved the job since
	JSON     string    // the definition; used in place of the form if AsJSON
	AsJSON   bool
	Preview  previewView
	mistakes
}

// mistakes are what is wrong with what the visitor wrote.
type mistakes struct {
	Problem *problem.Problem // nil: nothing is
	fields  []string         // of the body, beside which the form shows what is wrong
}

// Fault returns what is wrong with a field of the body, such as schedule.cron. What is wrong with a part of it, such as
// a header among the headers, begins with the name of the part.
func (m mistakes) Fault(field string) string {
	if m.Problem == nil {
		return ""
	}
	var all []string
	for _, f := range m.Problem.Errors {
		if f.Location == "body."+field {
			all = append(all, f.Message)
		} else if part, found := strings.CutPrefix(f.Location, "body."+field); found && isPart(part) {
			all = append(all, strings.TrimPrefix(part, ".")+": "+f.Message)
		}
	}
	return strings.Join(all, "; ")
}

// isPart reports whether what follows the name of a field leads to a part of it.
func isPart(rest string) bool { return strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "[") }

// Faults returns what is wrong and belongs to no field of the form.
func (m mistakes) Faults() (faults []problem.FieldError) {
	if m.Problem == nil {
		return nil
	}
	for _, f := range m.Problem.Errors {
		beside := func(field string) bool {
			part, found := strings.CutPrefix(f.Location, "body."+field)
			return found && (part == "" || isPart(part))
		}
		if !slices.ContainsFunc(m.fields, beside) {
			faults = append(faults, f)
		}
	}
	return faults
}

// formFields are the fields beside which the form shows what is wrong.
var formFields = []string{
	"name", "description", "schedule.cron", "schedule.timezone", "schedule.every", "schedule.at", "schedule.delay",
	"schedule.event", "schedule.filter",
	"target.url", "target.method", "target.headers", "target.body", "steps", "timeout", "retry.max_attempts", "queue",
	"labels",
	"concurrency_policy", "max_pending_runs", "limits", "then", "missed.policy",
}

// jobForm holds the fields of a definition as people write them.
type jobForm struct {
	Name, Description, Kind          string
	Cron, Timezone, Every, At, Delay string
	Event, Filter                    string
	URL, Method, Headers, Body       string
	Timeout, Attempts, Queue, Labels string
	Concurrency, Missed, Pending     string
	Limits, Then                     string
	Steps                            string // as JSON; empty: the job has a target
}

// formOf fills the form with a definition. A field that has its default is empty: what nobody touches is not written.
func formOf(d domain.Definition) jobForm {
	f := written(d)
	byDefault := defaultsOf(d)
	for _, in := range formInputs {
		if *in.of(&f) == *in.of(&byDefault) {
			*in.of(&f) = ""
		}
	}
	f.Kind = string(d.Schedule.Kind())
	return f
}

// defaultsOf returns the defaults of a definition's fields.
func defaultsOf(d domain.Definition) jobForm {
	byDefault := domain.Definition{Completion: d.Completion}.WithDefaults()
	byDefault.Schedule.Timezone = zoneOf(byDefault.Schedule)
	return written(byDefault)
}

// written fills the form with a definition, default or not.
func written(d domain.Definition) jobForm {
	f := jobForm{
		Name: d.Name, Description: d.Description, Kind: string(d.Schedule.Kind()),
		Cron: d.Schedule.Cron, Timezone: d.Schedule.Timezone, Every: d.Schedule.Every.String(),
		At: d.Schedule.At.String(), Delay: d.Schedule.Delay.String(),
		Event: d.Schedule.Event, Filter: string(d.Schedule.Filter),
		URL: d.Target.URL, Method: d.Target.Method, Headers: lines(d.Target.Headers, ": "),
		Timeout: d.Timeout.String(), Queue: d.Queue, Labels: lines(d.Labels, "="),
		Concurrency: string(d.ConcurrencyPolicy), Missed: string(d.Missed.Policy),
	}
	if d.Retry.MaxAttempts != 0 {
		f.Attempts = strconv.Itoa(d.Retry.MaxAttempts)
	}
	if d.MaxPendingRuns != 0 {
		f.Pending = strconv.Itoa(d.MaxPendingRuns)
	}
	f.Limits = strings.Join(d.Limits, "\n")
	for _, l := range d.Then {
		f.Then = strings.TrimPrefix(f.Then+"\n"+l.Job+" "+string(cmp.Or(l.When, domain.WhenSucceeded)), "\n")
	}
	if d.IsWorkflow() {
		f.Steps = indented(d.Steps)
	}
	if len(d.Target.Body) > 0 {
		f.Body = unquoted(json.RawMessage(indented(d.Target.Body))) // a text without its quotes
	}
	return f
}

func lines(values map[string]string, between string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, name+between+values[name])
	}
	return strings.Join(all, "\n")
}

// formInputs are the fields of the form, by the names under which a browser sends them.
var formInputs = []struct {
	name, label string
	of          func(*jobForm) *string
}{
	{"name", "Name", func(f *jobForm) *string { return &f.Name }},
	{"description", "Description", func(f *jobForm) *string { return &f.Description }},
	{"labels", "Labels", func(f *jobForm) *string { return &f.Labels }},
	{"kind", "Kind", func(f *jobForm) *string { return &f.Kind }},
	{"cron", "Cron", func(f *jobForm) *string { return &f.Cron }},
	{"timezone", "Time zone", func(f *jobForm) *string { return &f.Timezone }},
	{"every", "Every", func(f *jobForm) *string { return &f.Every }},
	{"at", "At", func(f *jobForm) *string { return &f.At }},
	{"delay", "Delay", func(f *jobForm) *string { return &f.Delay }},
	{"event", "Event", func(f *jobForm) *string { return &f.Event }},
	{"filter", "Filter", func(f *jobForm) *string { return &f.Filter }},
	{"method", "Method", func(f *jobForm) *string { return &f.Method }},
	{"url", "URL", func(f *jobForm) *string { return &f.URL }},
	{"headers", "Headers", func(f *jobForm) *string { return &f.Headers }},
	{"body", "Body", func(f *jobForm) *string { return &f.Body }},
	{"steps", "Steps", func(f *jobForm) *string { return &f.Steps }},
	{"timeout", "Timeout", func(f *jobForm) *string { return &f.Timeout }},
	{"attempts", "Attempts, at most", func(f *jobForm) *string { return &f.Attempts }},
	{"concurrency", "While another run is active", func(f *jobForm) *string { return &f.Concurrency }},
	{"pending", "Runs that may wait", func(f *jobForm) *string { return &f.Pending }},
	{"limits", "Limits", func(f *jobForm) *string { return &f.Limits }},
	{"then", "Then", func(f *jobForm) *string { return &f.Then }},
	{"missed", "Missed slots", func(f *jobForm) *string { return &f.Missed }},
	{"queue", "Queue", func(f *jobForm) *string { return &f.Queue }},
}

// readForm reads the form, field by field.
func readForm(field func(name string) string) (f jobForm) {
	for _, in := range formInputs {
		*in.of(&f) = field(in.name)
	}
	return f.tidy()
}

// tidy writes the texts as a browser sends them back, so that a text nobody touched is the same.
func (f jobForm) tidy() jobForm {
	for _, in := range formInputs {
		*in.of(&f) = strings.TrimSpace(strings.ReplaceAll(*in.of(&f), "\r\n", "\n"))
	}
	return f
}

// Workflow reports whether the form has steps in place of a target, also if the visitor has emptied them.
func (e editorView) Workflow() bool {
	return e.Form.Steps != "" || e.Job != nil && e.Job.IsWorkflow()
}

// patch returns what the form says, as a JSON Merge Patch: an emptied field is null, which restores the default.
func (f jobForm) patch() map[string]any {
	orNull := func(value string) any {
		if value == "" {
			return nil
		}
		return value
	}
	target := map[string]any{"url": f.URL, "method": orNull(f.Method), "headers": pairs(f.Headers, ":"), "body": nil}
	if f.Body != "" {
		target["body"] = client.BodyOf([]byte(f.Body))
	}
	number := func(value string) any {
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
		return orNull(value)
	}
	patch := map[string]any{
		"name": f.Name, "description": orNull(f.Description), "schedule": f.schedule(), "target": target,
		"timeout": orNull(f.Timeout), "retry": map[string]any{"max_attempts": number(f.Attempts)},
		"queue": orNull(f.Queue), "labels": pairs(f.Labels, "="),
		"concurrency_policy": orNull(f.Concurrency), "max_pending_runs": number(f.Pending),
		"limits": f.limits(), "then": f.then(), "missed": map[string]any{"policy": orNull(f.Missed)},
	}
	if f.Steps != "" {
		delete(patch, "target")
		patch["steps"] = client.BodyOf([]byte(f.Steps)) // a text that is no JSON is one that the API refuses
	}
	return patch
}

// limits returns the limits that the form names; nil: none.
func (f jobForm) limits() any {
	if names := strings.Fields(f.Limits); len(names) > 0 {
		return names
	}
	return nil
}

// then returns the jobs that the end of a run triggers, a line each, with the word that says when; nil: none.
func (f jobForm) then() any {
	var links []map[string]any
	for line := range strings.Lines(f.Then) {
		if job, when, said := strings.Cut(strings.TrimSpace(line), " "); said {
			links = append(links, map[string]any{"job": job, "when": strings.TrimSpace(when)})
		} else if job != "" {
			links = append(links, map[string]any{"job": job})
		}
	}
	if links == nil {
		return nil
	}
	return links
}

// schedule returns the schedule of the chosen kind; the fields of other kinds are null.
func (f jobForm) schedule() map[string]any {
	s := map[string]any{
		"cron": nil, "timezone": nil, "every": nil, "at": nil, "delay": nil, "event": nil, "filter": nil,
	}
	switch domain.Kind(f.Kind) {
	case domain.KindCron:
		s["cron"] = f.Cron
		if f.Timezone != "" {
			s["timezone"] = f.Timezone
		}
	case domain.KindEvery:
		s["every"] = f.Every
	case domain.KindAt:
		at := instantIn(f.At, time.UTC)
		local, added := strings.CutSuffix(at, "Z")
		if s["at"] = at; f.Timezone != "" && added && !strings.HasSuffix(f.At, "Z") {
			s["at"], s["timezone"] = local, f.Timezone
		}
	case domain.KindDelay:
		s["delay"] = f.Delay
	case domain.KindEvent:
		s["event"] = f.Event
		if f.Filter != "" {
			s["filter"] = client.BodyOf([]byte(f.Filter)) // a text that is no JSON is one that the API refuses
		}
	}
	return s
}

// pairs reads lines of names and values. A line without a value has an empty one, which the API judges.
func pairs(text, between string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			name, value, _ := strings.Cut(line, between)
			all[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return all
}

// withoutNulls drops what a new job leaves at its default.
func withoutNulls(m map[string]any) map[string]any {
	kept := map[string]any{}
	for name, value := range m {
		if inner, ok := value.(map[string]any); ok {
			if inner = withoutNulls(inner); len(inner) > 0 || name == "target" {
				kept[name] = inner
			}
		} else if value != nil {
			kept[name] = value
		}
	}
	return kept
}

const newJSON = `{
  "name": "daily-invoice-gen",
  "schedule": {"cron": "0 3 * * mon-fri", "timezone": "Europe/Berlin"},
  "target": {"url": "https://billing.internal/invoices", "method": "POST", "body": {"date": "{{scheduled_for|date}}"}}
}`

func (v *visit) newJob() error {
	if err := v.needs(auth.RoleSubmitter, "Creating a job"); err != nil {
		return err
	}
	view := editorView{AsJSON: v.param("as") == "json", JSON: newJSON}
	view.Form = jobForm{Kind: string(domain.KindCron), Cron: "0 3 * * mon-fri"}
	view.Defaults = defaultsOf(domain.Definition{})
	if !v.may(auth.RoleEditor) { // one-shots are all that a submitter creates
		view.Form.Kind, view.Form.Cron = string(domain.KindDelay), ""
		view.JSON = strings.Replace(newJSON, `{"cron": "0 3 * * mon-fri", "timezone": "Europe/Berlin"}`, `{"delay": "5m"}`, 1)
	}
	if from := v.param("like"); from != "" {
		job, err := v.api.Job(v.ctx(), from)
		if err != nil {
			return err
		}
		job.Name += "-copy"
		view.Form, view.JSON = formOf(job.Definition), indented(job.Definition)
		view.Defaults = defaultsOf(job.Definition)
	}
	view.Preview = v.previewOf(view.Form)
	return v.show("editor", "New job", view)
}

func (v *visit) createJob() error {
	view := v.edited()
	view.Defaults = defaultsOf(domain.Definition{})
	var body any = withoutNulls(view.Form.patch())
	if view.AsJSON {
		body = json.RawMessage(view.JSON)
	}
	return v.write(view, "New job", v.api, http.MethodPost, "/v1/jobs", body)
}

// edited reads what the visitor wrote.
func (v *visit) edited() editorView {
	view := editorView{Form: readForm(v.field), JSON: v.field("json"), AsJSON: v.field("as") == "json"}
	if !view.AsJSON {
		view.fields = slices.Clone(formFields)
	}
	return view
}

// write writes a job. What is wrong is shown beside the fields, which keep what was written.
func (v *visit) write(view editorView, title string, api *client.Client, method, path string, body any) error {
	if raw, ok := body.(json.RawMessage); ok && !json.Valid(raw) {
		view.Problem = problem.Invalid(problem.At("body", syntaxOf(raw)))
		return v.render(http.StatusUnprocessableEntity, "editor", title, view)
	}
	var job httpapi.Job
	_, err := api.Do(v.ctx(), method, path, body, &job)
	if err == nil {
		return v.to("/jobs/"+url.PathEscape(job.Name), "The job is saved as version "+strconv.Itoa(int(job.Version))+".")
	}
	view.Problem = problemOf(err)
	if view.Problem.Status >= http.StatusInternalServerError || view.Problem.Code == problem.CodeVersion {
		return err
	}
	view.Preview = v.previewOf(view.Form)
	return v.render(view.Problem.Status, "editor", title, view)
}

// syntaxOf says where a text ceases to be JSON.
func syntaxOf(raw []byte) string {
	var value json.RawMessage
	err := json.Unmarshal(raw, &value)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		before := raw[:min(int(syntax.Offset), len(raw))]
		line := 1 + strings.Count(string(before), "\n")
		return fmt.Sprintf("line %d: %s", line, syntax)
	}
	return fmt.Sprint(err)
}

// previewView shows the next slots of a schedule that is being written.
type previewView struct {
	Words    string
	Warnings []string
	Slots    []httpapi.PreviewSlot
	Zone     string
	Problem  *problem.Problem
}

// preview answers with the next slots of the schedule in the query, without the layout.
func (v *visit) preview() error {
	return v.fragment("editor", "preview", v.previewOf(readForm(v.param)))
}

func (v *visit) previewOf(form jobForm) (view previewView) {
	switch kind := domain.Kind(form.Kind); {
	case kind.Recurring(), kind == domain.KindAt && form.At != "":
	default:
		return view
	}
	schedule := withoutNulls(form.schedule())
	var preview httpapi.Preview
	_, err := v.api.Do(v.ctx(), http.MethodPost, "/v1/schedules/preview", map[string]any{"schedule": schedule}, &preview)
	if err != nil {
		view.Problem = problemOf(err)
		return view
	}
	view.Warnings, view.Slots, view.Zone = preview.Warnings, preview.Slots, form.Timezone
	var s domain.Schedule
	if raw, err := json.Marshal(schedule); err == nil && json.Unmarshal(raw, &s) == nil {
		view.Words = scheduleWords(s)
	}
	return view
}
