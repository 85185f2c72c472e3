package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
)

// loaded is the job as the visitor's form has shown it. The form sends it back: what differs from it was changed by the
// visitor, whatever others have saved in the meantime.
type loaded struct {
	Version    int32
	Definition string // as JSON
}

func loadedOf(job httpapi.Job) loaded {
	definition, _ := json.Marshal(job.Definition) // a definition that was decoded is always JSON
	return loaded{job.Version, string(definition)}
}

func (l loaded) form() jobForm {
	var d jobspec.Definition
	_ = json.Unmarshal([]byte(l.Definition), &d) // loadedBy has read it
	return formOf(d).tidy()
}

// loadedBy reads what the form has shown. Without it, the form is compared with the job as it is now.
func (v *visit) loadedBy(job httpapi.Job) (loaded, error) {
	if v.field("loaded") == "" {
		return loadedOf(job), nil
	}
	var d jobspec.Definition
	version, err := strconv.ParseInt(v.field("version"), 10, 32)
	if err != nil || json.Unmarshal([]byte(v.field("loaded")), &d) != nil {
		return loaded{}, problem.New(problem.CodeMalformed, "The form does not say which version of the job it changes.")
	}
	return loaded{int32(version), v.field("loaded")}, nil
}

func (v *visit) editJob(job httpapi.Job) error {
	view := editorView{
		Job: &job, Form: formOf(job.Definition), Defaults: defaultsOf(job.Definition), Loaded: loadedOf(job),
		JSON: indented(job.Definition), AsJSON: v.param("as") == "json",
	}
	view.Preview = v.previewOf(view.Form)
	return v.show("editor", "Edit "+job.Name, view)
}

// saveJob writes what the visitor changed, if nobody else has changed the job since the form was loaded.
func (v *visit) saveJob(job httpapi.Job) error {
	view := v.edited()
	view.Job, view.Defaults = &job, defaultsOf(job.Definition)
	if view.Workflow() { // it has no fields for a target
		view.fields = slices.DeleteFunc(view.fields, func(f string) bool { return strings.HasPrefix(f, "target.") })
	}
	var err error
	if view.Loaded, err = v.loadedBy(job); err != nil {
		return err
	}
	before := view.Loaded.form()
	for _, in := range formInputs {
		if v.field("take-"+in.name) == "saved" {
			view.Form[in.name] = before[in.name]
		}
	}
	method := http.MethodPatch
	body, lost := changed(asJSON(before.patch()), asJSON(view.Form.patch()))
	if view.AsJSON {
		method, body = changedJSON(view.Loaded.Definition, view.JSON)
	} else if lost {
		view.Problem = problem.Invalid(problem.At("body.target.body",
			"has a null, which this form cannot write; write it under JSON"))
		return v.render(view.Problem.Status, "editor", "Edit "+job.Name, view)
	}
	api := v.api
	if method == http.MethodPatch {
		api = api.WithHeader("Content-Type", "application/merge-patch+json")
	}
	for {
		condition := strconv.Quote(strconv.Itoa(int(view.Loaded.Version)))
		err = v.write(view, "Edit "+job.Name, api.WithHeader("If-Match", condition), method,
			"/v1/jobs/"+job.ID.String(), body)
		if !client.Is(err, problem.CodeVersion) {
			return err
		}
		if job, err = call(v, client.Job, nil, job.ID.String()); err != nil {
			return err
		}
		if loadedOf(job).Definition != view.Loaded.Definition {
			return v.showConflict(view, job)
		}
		view.Loaded.Version = job.Version // only its state was changed, such as by a pause
	}
}

// asJSON returns what a value is in JSON.
func asJSON(v any) (value any) {
	raw, err := json.Marshal(v)
	if err == nil {
		value = decoded(raw)
	}
	return value
}

// decoded reads JSON, and keeps every digit of its numbers.
func decoded(raw []byte) (value any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	_ = d.Decode(&value) // what is no JSON is refused before
	return value
}

// changedJSON returns the request that changes one definition into another: a patch, or a replacement where a patch
// cannot say it.
func changedJSON(before, after string) (method string, body json.RawMessage) {
	if !jsontext.Value(after).IsValid() { // also if a member appears twice, which a patch cannot say
		return http.MethodPut, json.RawMessage(after) // write or the API says what is wrong
	}
	patch, lost := changed(decoded([]byte(before)), decoded([]byte(after)))
	if lost || patch[0] != '{' {
		return http.MethodPut, json.RawMessage(after)
	}
	return http.MethodPatch, patch
}

// changed returns the JSON Merge Patch that changes one definition into another. A null within a new body is lost: to
// a patch, it means that there is none.
func changed(before, after any) (patch json.RawMessage, lost bool) {
	patch, _ = json.Marshal(merging(before, after)) // it was decoded from JSON
	was, is := bodyIn(before), bodyIn(after)
	return patch, !reflect.DeepEqual(was, is) && is != nil && holdsNull(is)
}

func merging(before, after any) any {
	is, object := after.(map[string]any)
	was, same := before.(map[string]any)
	if !object {
		return after
	}
	patch := map[string]any{}
	for name := range was {
		if _, kept := is[name]; !kept {
			patch[name] = nil
		}
	}
	for name, value := range is {
		if old, had := was[name]; !same || !had || !reflect.DeepEqual(old, value) {
			patch[name] = merging(old, value)
		}
	}
	return patch
}

func bodyIn(definition any) any {
	object, _ := definition.(map[string]any)
	target, _ := object["target"].(map[string]any)
	return target["body"]
}

func holdsNull(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return slices.ContainsFunc(value, holdsNull)
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), holdsNull)
	}
	return false
}

// conflict is what others have saved since a form was loaded, beside what the form says.
type conflict struct {
	Version int32 // that is saved now
	Rows    []conflictRow
}

type conflictRow struct {
	Name, Label        string
	Before, Yours, Now string
	Both               bool   // both have changed it: the visitor chooses
	None               string // what nothing is in this field
}

// showConflict shows what the visitor wrote beside what is saved now. A field that only others have changed is taken
// from them. What both have changed stays as the visitor wrote it, until the visitor chooses.
func (v *visit) showConflict(view editorView, now httpapi.Job) error {
	before, saved, byDefault := view.Loaded.form(), formOf(now.Definition).tidy(), defaultsOf(now.Definition)
	view.Conflict = &conflict{Version: now.Version}
	for _, in := range formInputs {
		row := conflictRow{in.name, in.label, before[in.name], view.Form[in.name], saved[in.name], false, "the default"}
		if byDefault[in.name] == "" {
			row.None = "empty"
		}
		if view.AsJSON || row.Now == row.Before && row.Yours == row.Now {
			continue
		}
		switch {
		case row.Yours == row.Before:
			view.Form[in.name] = row.Now
		case row.Now != row.Before && row.Now != row.Yours:
			row.Both = true
		}
		view.Conflict.Rows = append(view.Conflict.Rows, row)
	}
	if view.AsJSON {
		for _, d := range audit.Differences(json.RawMessage(view.JSON), json.RawMessage(loadedOf(now).Definition)) {
			view.Conflict.Rows = append(view.Conflict.Rows,
				conflictRow{Label: d.Field, Yours: unquoted(d.Before), Now: unquoted(d.After)})
		}
	}
	view.Job, view.Loaded, view.Defaults = &now, loadedOf(now), byDefault
	view.Preview = v.previewOf(view.Form)
	return v.render(http.StatusConflict, "editor", "Edit "+now.Name, view)
}
