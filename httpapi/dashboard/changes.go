package dashboard

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/jobs"
)

// changesView is what was changed in a job, and by whom.
type changesView struct {
	Job          httpapi.Job
	Changes      []change
	Next         string
	Versions     []jobs.Version
	NextVersions string
	Compared     *jobs.WholeVersion // against the present one
}

func (v *visit) changes(job httpapi.Job) error {
	view, id := changesView{Job: job}, job.ID.String()
	query := filtered(v.r.URL.Query(), "cursor")
	query.Set("limit", "50")
	list, err := call(v, client.JobChanges, query, id)
	if err != nil {
		return err
	}
	view.Changes, view.Next = changesOf(list.Data, func(c audit.JobChange) change {
		return change{JobChange: c}
	}), text(list.NextCursor)
	former := url.Values{"limit": {"10"}}
	if cursor := v.param("versions"); cursor != "" {
		former.Set("cursor", cursor)
	}
	versions, err := call(v, client.Versions, former, id)
	if err != nil {
		return err
	}
	view.Versions, view.NextVersions = versions.Data, text(versions.NextCursor)
	if number, err := strconv.ParseInt(v.param("version"), 10, 32); err == nil {
		against := url.Values{"against": {fmt.Sprint(job.Version)}}
		compared, err := call(v, client.Version, against, id, fmt.Sprint(number))
		if err != nil {
			return err
		}
		view.Compared = &compared
	}
	return v.show("changes", job.Name, view)
}

// restoreVersion restores a version, unless the job is another than the visitor has seen.
func (v *visit) restoreVersion() error {
	number, _ := strconv.ParseInt(v.field("version"), 10, 32) // 0 is no version
	api := v.api.WithHeader("If-Match", fmt.Sprintf("%q", v.field("seen")))
	_, err := client.RestoreVersion.Do(v.ctx(), api, nil, v.part("job"), fmt.Sprint(number))
	return v.done(err, v.jobPath()+"/changes", fmt.Sprintf("Version %d is restored.", number))
}

// changedIn lists the fields that an entry says were changed. A field that a job's definition lacked, or lacks now, has
// its default.
func changedIn(e audit.JobChange) (found []difference) {
	for _, d := range audit.Differences(e.Before, e.After) {
		if d.Field != "version" { // nobody changes it
			found = append(found, difference{d.Field, unquoted(d.Before), unquoted(d.After)})
		}
	}
	byDefault := map[string]string{}
	if strings.HasPrefix(string(e.Action), "job.") && !empty(e.Before) && !empty(e.After) {
		byDefault = defaultFields()
	}
	for i := range found {
		found[i].Field = strings.TrimPrefix(found[i].Field, "definition.")
		for _, side := range []*string{&found[i].Before, &found[i].After} {
			if value := byDefault[found[i].Field]; *side == "" && value != "" {
				*side = value + " (default)"
			}
		}
	}
	return found
}

// defaultFields are the defaults of a job's fields, under their paths.
func defaultFields() map[string]string {
	d := jobspec.Definition{Schedule: jobspec.Schedule{Cron: "* * * * *"}}.WithDefaults()
	fields := map[string]string{}
	if raw, err := json.Marshal(d); err == nil {
		for _, d := range audit.Differences(nil, raw) {
			fields[d.Field] = unquoted(d.After)
		}
	}
	return fields
}

// value shows a value of a field, and a time in the visitor's zone.
func value(text string) template.HTML {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return when(at)
	}
	return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // escaped
}

func empty(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
