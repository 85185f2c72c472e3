package dashboard

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"punctual/httpapi/body"
	"punctual/httpapi/client"
	"punctual/scheduler/jobspec"
)

// formInputs are the fields of the job's form: their names, their labels, their places in the body, and how people
// write them. The parts of the schedule are written by its kind: see jobForm.schedule.
var formInputs = []struct {
	name, label, at string
	as              writing
}{
	{"name", "Name", "name", required},
	{"description", "Description", "description", plain},
	{"labels", "Labels", "labels", pairsBy("=")},
	{"kind", "Kind", "", plain},
	{"cron", "Cron", "schedule.cron", plain},
	{"timezone", "Time zone", "schedule.timezone", plain},
	{"every", "Every", "schedule.every", plain},
	{"at", "At", "schedule.at", plain},
	{"delay", "Delay", "schedule.delay", plain},
	{"event", "Event", "schedule.event", plain},
	{"filter", "Filter", "schedule.filter", plain},
	{"method", "Method", "target.method", plain},
	{"url", "URL", "target.url", required},
	{"headers", "Headers", "target.headers", pairsBy(": ")},
	{"body", "Body", "target.body", anyJSON},
	{"steps", "Steps", "steps", anyJSON},
	{"timeout", "Timeout", "timeout", plain},
	{"attempts", "Attempts, at most", "retry.max_attempts", number},
	{"concurrency", "While another run is active", "concurrency_policy", plain},
	{"pending", "Runs that may wait", "max_pending_runs", number},
	{"limits", "Limits", "limits", names},
	{"then", "Then", "then", links},
	{"missed", "Missed slots", "missed.policy", plain},
	{"missed_concurrency", "Missed slots of fire_all", "missed.concurrency", plain},
	{"queue", "Queue", "queue", plain},
}

// writing is how people write a part of a definition.
type writing struct {
	text func(part json.RawMessage) string
	part func(text string) any

	empty bool // an empty text is a part too; otherwise it is null, which restores the default
}

var (
	plain    = writing{text: unquoted, part: func(text string) any { return text }}
	required = writing{text: unquoted, part: plain.part, empty: true}
	number   = writing{text: unquoted, part: func(text string) any {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
		return text
	}}
	anyJSON = writing{ // a text that is no JSON is one that the API judges
		text: func(part json.RawMessage) string { return unquoted(json.RawMessage(indented(part))) },
		part: func(text string) any { return client.BodyOf([]byte(text)) },
	}
	names = writing{
		text: func(part json.RawMessage) string { return strings.Join(as[[]string](part), "\n") },
		part: func(text string) any { return strings.Fields(text) },
	}
	// The jobs that the end of a run triggers, a line each, with the word that says when.
	links = writing{text: linksText, part: linksOf}
)

// pairsBy is how people write names and values: a line each.
func pairsBy(between string) writing {
	return writing{
		text: func(part json.RawMessage) string {
			return strings.Join(pairsOf(as[map[string]string](part), between), "\n")
		},
		part:  func(text string) any { return pairs(text, strings.TrimSpace(between)) },
		empty: true,
	}
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

func linksText(part json.RawMessage) string {
	var lines []string
	for _, l := range as[[]jobspec.Link](part) {
		lines = append(lines, l.Job+" "+string(cmp.Or(l.When, jobspec.WhenSucceeded)))
	}
	return strings.Join(lines, "\n")
}

func linksOf(text string) any {
	var list []jobspec.Link
	for line := range strings.Lines(text) {
		if job, when, _ := strings.Cut(strings.TrimSpace(line), " "); job != "" {
			list = append(list, jobspec.Link{Job: job, When: jobspec.LinkWhen(strings.TrimSpace(when))})
		}
	}
	return list
}

// written fills the form with a definition, default or not.
func written(d jobspec.Definition) jobForm {
	whole, _ := body.Render(d) // a definition always has a JSON
	f := jobForm{}
	for _, in := range formInputs {
		part := json.RawMessage(whole)
		for name := range strings.SplitSeq(in.at, ".") {
			part = as[map[string]json.RawMessage](part)[name]
		}
		if f[in.name] = ""; part != nil {
			f[in.name] = in.as.text(part)
		}
	}
	return f
}

// patch returns what the form says, as a JSON Merge Patch.
func (f jobForm) patch() map[string]any {
	target, retry, missed := map[string]any{}, map[string]any{}, map[string]any{}
	patch := map[string]any{"schedule": f.schedule(), "target": target, "retry": retry, "missed": missed}
	for _, in := range formInputs {
		if outer, inner, nested := strings.Cut(in.at, "."); !nested {
			patch[in.at] = in.as.of(f[in.name])
		} else if outer != "schedule" {
			patch[outer].(map[string]any)[inner] = in.as.of(f[in.name])
		}
	}
	delete(patch, "") // the kind of the schedule
	if f["missed"] != string(jobspec.MissedFireAll) {
		missed["concurrency"] = nil // only fire_all has it
	}
	if f["steps"] != "" {
		delete(patch, "target")
	} else {
		delete(patch, "steps")
	}
	return patch
}

func (w writing) of(text string) any {
	if text == "" && !w.empty {
		return nil
	}
	return w.part(text)
}

// as reads JSON that the API has written.
func as[T any](part json.RawMessage) (value T) {
	_ = json.Unmarshal(part, &value) // what is not there is empty
	return value
}
