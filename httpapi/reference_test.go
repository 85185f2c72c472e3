package httpapi

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"punctual/httpapi/api"
	"punctual/scheduler/jobspec"
)

//go:generate go test . -run OpenAPI|Reference -args -update

// docs/reference/jobs.md lists the fields of a job as the API describes them.
func TestTheReferenceOfJobsIsCurrent(t *testing.T) {
	t.Parallel()
	const file, begin = "../docs/reference/jobs.md", "## Fields of a job\n"
	page, err := os.ReadFile(file)
	must(t, err)
	head, was, _ := strings.Cut(string(page), begin)
	is := strings.TrimPrefix(jobReference(t), begin)
	if *update {
		must(t, os.WriteFile(file, []byte(head+begin+is), 0o644))
		return
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("%s differs; go test ./httpapi -run Reference -args -update writes it anew: %s", file, diff)
	}
}

func jobReference(t *testing.T) string {
	t.Helper()
	schemas := dig(static200(t, "/openapi.json").fields(), "components", "schemas")
	var page strings.Builder
	for _, part := range []struct {
		title, schema string
		of            reflect.Type
	}{
		{"Fields of a job", "JobInput", reflect.TypeFor[JobInput]()},
		{"schedule", "Schedule", reflect.TypeFor[jobspec.Schedule]()},
		{"missed", "Missed", reflect.TypeFor[jobspec.Missed]()},
		{"target", "Target", reflect.TypeFor[jobspec.Target]()},
		{"target.auth", "Auth", reflect.TypeFor[jobspec.Auth]()},
		{"target.tls", "TLS", reflect.TypeFor[jobspec.TLS]()},
		{"steps", "Step", reflect.TypeFor[jobspec.Step]()},
		{"steps.approval", "Approval", reflect.TypeFor[jobspec.Approval]()},
		{"steps.approval.notify", "ApprovalNotify", reflect.TypeFor[jobspec.ApprovalNotify]()},
		{"retry", "Retry", reflect.TypeFor[jobspec.Retry]()},
		{"then", "Link", reflect.TypeFor[jobspec.Link]()},
		{"notify", "Notify", reflect.TypeFor[jobspec.Notify]()},
	} {
		fmt.Fprintf(&page, "## %s\n\n| field | type | default | meaning |\n|---|---|---|---|\n", part.title)
		schema := dig(schemas, part.schema).(map[string]any)
		required, _ := schema["required"].([]any)
		fields, names := schema["properties"].(map[string]any), fieldsOf(part.of)
		if len(names) != len(fields) {
			t.Errorf("%s has the fields %v, and is described with %d", part.schema, names, len(fields))
		}
		for _, name := range names {
			fmt.Fprintln(&page, fieldRow(name, fields[name].(map[string]any), slices.Contains(required, any(name))))
		}
		page.WriteByte('\n')
	}
	return strings.TrimSuffix(page.String(), "\n")
}

// fieldsOf returns the names of the fields of a struct in JSON, in the order of the struct.
func fieldsOf(of reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func fieldRow(name string, field map[string]any, required bool) string {
	words, _ := field["description"].(string)
	meaning, byDefault, _ := strings.Cut(words, "Absent: ")
	byDefault = strings.TrimSuffix(byDefault, ".")
	switch {
	case required:
		byDefault = "required"
	case byDefault == "":
		byDefault = "see [" + name + "](#" + name + ")"
	case byDefault != "none" && !strings.Contains(byDefault, " "):
		byDefault = "`" + byDefault + "`"
	}
	if choices, ok := field["enum"].([]any); ok && !explained(meaning, api.Texts(choices)) {
		meaning = strings.TrimSpace(meaning) + " One of `" + strings.Join(api.Texts(choices), "`, `") + "`."
	}
	cells := []string{
		"`" + name + "`", typeWords(field), byDefault, strings.TrimSpace(meaning),
	}
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(placeholders.ReplaceAllString(cell, "`$0`"), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

// explained tells whether a text names all choices already.
func explained(text string, choices []string) bool {
	for _, c := range choices {
		if !regexp.MustCompile(`\b` + c + `\b`).MatchString(text) {
			return false
		}
	}
	return true
}

var placeholders = regexp.MustCompile(`\{\{[^{}]+\}\}|\{\{\{\{`)

// typeWords names the type of a field for people.
func typeWords(field map[string]any) string {
	items, list := field["items"].(map[string]any)
	of, values := field["additionalProperties"].(map[string]any)
	switch {
	case list:
		return "list of " + typeWords(items)
	case values:
		return "map of " + typeWords(of)
	case field["$ref"] != nil:
		return "object"
	case field["type"] == nil:
		return "any JSON"
	}
	words := field["type"].(string)
	switch format, _ := field["format"].(string); format {
	case "go-duration":
		return "duration"
	case "date-time", "instant-or-local-time":
		return "instant"
	}
	return words
}
