package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
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
	"punctual/scheduler/jobspec"
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

// jobForm holds the fields of a definition as people write them, by their names in the form. Without steps, which are
// JSON, the job has a target.
type jobForm map[string]string

// formOf fills the form with a definition. A field that has its default is empty: what nobody touches is not written.
func formOf(d jobspec.Definition) jobForm {
	f := written(d)
	byDefault := defaultsOf(d)
	for name := range f {
		if f[name] == byDefault[name] {
			f[name] = ""
		}
	}
	f["kind"] = string(d.Schedule.Kind())
	return f
}

// defaultsOf returns the defaults of a definition's fields.
func defaultsOf(d jobspec.Definition) jobForm {
	byDefault := jobspec.Definition{Completion: d.Completion}.WithDefaults()
	byDefault.Schedule.Timezone = zoneOf(byDefault.Schedule)
	return written(byDefault)
}

// readForm reads the form, field by field.
func readForm(field func(name string) string) jobForm {
	f := jobForm{}
	for _, in := range formInputs {
		f[in.name] = field(in.name)
	}
	return f.tidy()
}

// tidy writes the texts as a browser sends them back, so that a text nobody touched is the same.
func (f jobForm) tidy() jobForm {
	for name, text := range f {
		f[name] = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	}
	return f
}

// Workflow reports whether the form has steps in place of a target, also if the visitor has emptied them.
func (e editorView) Workflow() bool {
	return e.Form["steps"] != "" || e.Job != nil && e.Job.IsWorkflow()
}

// schedule returns the schedule of the chosen kind; the fields of other kinds are null.
func (f jobForm) schedule() map[string]any {
	s := map[string]any{
		"cron": nil, "timezone": nil, "every": nil, "at": nil, "delay": nil, "event": nil, "filter": nil,
	}
	switch jobspec.Kind(f["kind"]) {
	case jobspec.KindCron:
		s["cron"] = f["cron"]
		if f["timezone"] != "" {
			s["timezone"] = f["timezone"]
		}
	case jobspec.KindEvery:
		s["every"] = f["every"]
	case jobspec.KindAt:
		at := instantIn(f["at"], time.UTC)
		local, added := strings.CutSuffix(at, "Z")
		if s["at"] = at; f["timezone"] != "" && added && !strings.HasSuffix(f["at"], "Z") {
			s["at"], s["timezone"] = local, f["timezone"]
		}
	case jobspec.KindDelay:
		s["delay"] = f["delay"]
	case jobspec.KindEvent:
		s["event"] = f["event"]
		if f["filter"] != "" {
			s["filter"] = client.BodyOf([]byte(f["filter"])) // a text that is no JSON is one that the API refuses
		}
	}
	return s
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
	view.Form = readForm(func(string) string { return "" })
	view.Form["kind"], view.Form["cron"] = string(jobspec.KindCron), "0 3 * * mon-fri"
	view.Defaults = defaultsOf(jobspec.Definition{})
	if !v.may(auth.RoleEditor) { // one-shots are all that a submitter creates
		view.Form["kind"], view.Form["cron"] = string(jobspec.KindDelay), ""
		view.JSON = strings.Replace(newJSON, `{"cron": "0 3 * * mon-fri", "timezone": "Europe/Berlin"}`, `{"delay": "5m"}`, 1)
	}
	if from := v.param("like"); from != "" {
		job, err := call(v, client.Job, nil, from)
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
	view.Defaults = defaultsOf(jobspec.Definition{})
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
		for _, in := range formInputs {
			if in.at != "" {
				view.fields = append(view.fields, in.at)
			}
		}
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
	return v.answer(http.StatusOK, "editor", "preview", v.previewOf(readForm(v.param)))
}

func (v *visit) previewOf(form jobForm) (view previewView) {
	switch kind := jobspec.Kind(form["kind"]); {
	case kind.Recurring(), kind == jobspec.KindAt && form["at"] != "":
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
	view.Warnings, view.Slots, view.Zone = preview.Warnings, preview.Slots, form["timezone"]
	var s jobspec.Schedule
	if raw, err := json.Marshal(schedule); err == nil && json.Unmarshal(raw, &s) == nil {
		view.Words = scheduleWords(s)
	}
	return view
}
