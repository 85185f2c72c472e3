package dashboard

import (
	"encoding/json"
	"html/template"
	"strings"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/audit"
)

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
	d := domain.Definition{Schedule: domain.Schedule{Cron: "* * * * *"}}.WithDefaults()
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
