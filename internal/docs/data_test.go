package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"punctual/scheduler/jobspec"
)

// The JSON of the pages is what some body of the API, or some part of one, looks like. So are jobs in YAML. Other YAML,
// such as a manifest of Kubernetes, is well-formed.
func TestTheDataOfThePagesIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	schemas := readSchemas(t)
	for _, page := range Pages(t) {
		for _, b := range Blocks(t, page) {
			var wrong []string
			switch b.Word {
			case "json":
				wrong = schemas.wrongJSON(b.Text)
			case "yaml":
				wrong = schemas.wrongYAML(b.Text)
			}
			if len(wrong) > 0 {
				t.Errorf("%s: %s\n%s", b, strings.Join(wrong, "; "), b.Text)
			}
		}
	}
}

func TestWhatIsWrongWithDataOfAPage(t *testing.T) {
	t.Parallel()
	schemas := readSchemas(t)
	for _, c := range []struct{ word, text, wrong string }{
		{"json", `{"name": "a", "schedule": {"every": "5m"}, "target": {"url": "https://a.internal", "body": {"any": 1}}}`, ""},
		{"json", `"missed": {"policy": "skip"}, "timeout": "5s"`, ""}, // some fields of a job
		{"json", `{"name": "a", "schedule": {"often": "5m"}}`, "no field schedule.often"},
		{"json", `"missed": {"policy": "never"}`, "missed.policy is never"},
		{"json", `{"name": 5}`, "name is no string"},
		{"json", `{"name": "a",}`, "no JSON"},
		{"yaml", "name: a\nschedule: {every: 5m}\ntarget: {url: https://a.internal}\n---\nname: b\ntarget: {uri: x}\n", "target.uri"},
		{"yaml", "jobs:\n  - name: b\n    timeout: 5\n", "timeout is no string"},
		{"yaml", "kind: Deployment\nmetadata: {name: punctual}\n", ""},
		{"yaml", "name: a\nschedule: {cron: 0 3 31 2 *}\ntarget: {url: https://a.internal}\n", "schedule.cron"},
		{"yaml", "name: a\nsteps:\n  - {name: b, depends_on: [c], target: {url: https://a.internal}}\n", "steps"},
		{"json", `{"name": "a", "target": {"url": "https://a.internal", "auth": {"type": "bearer"}}}`, "target.auth"},
		{"yaml", "a: [b\n", "no YAML"},
	} {
		wrong := schemas.wrongJSON(c.text)
		if c.word == "yaml" {
			wrong = schemas.wrongYAML(c.text)
		}
		if got := strings.Join(wrong, "; "); (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: got %q, want %q", c.text, got, c.wrong)
		}
	}
}

// schemas are those of the OpenAPI document, by name.
type schemas map[string]any

func readSchemas(t *testing.T) schemas {
	t.Helper()
	var document struct {
		Components struct{ Schemas schemas }
	}
	must(t, json.Unmarshal([]byte(Read(t, "testdata/openapi.json")), &document))
	return document.Components.Schemas
}

// wrongJSON returns what keeps a text from being a value of any schema, by the schema that it is the most like. A text
// may leave out the braces, and required fields.
func (s schemas) wrongJSON(text string) []string {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil && json.Unmarshal([]byte("{"+text+"}"), &value) != nil {
		return []string{"no JSON: " + err.Error()}
	}
	if wrong := s.wrong(value); len(wrong) > 0 {
		return wrong
	}
	return invalidJob(value)
}

// invalidJob returns what the product refuses in a whole job: one with a name, and a target or steps.
func invalidJob(value any) (wrong []string) {
	fields, _ := value.(map[string]any)
	if fields["name"] == nil || fields["target"] == nil && fields["steps"] == nil {
		return nil
	}
	var job jobspec.Definition
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &job)
	}
	if err != nil {
		return []string{err.Error()}
	}
	for _, problem := range job.Validate() {
		wrong = append(wrong, problem.Error())
	}
	return wrong
}

// wrongYAML is wrongJSON for documents that hold jobs. All others need only be YAML.
func (s schemas) wrongYAML(text string) (wrong []string) {
	documents := yaml.NewDecoder(strings.NewReader(text))
	for {
		var value any
		if err := documents.Decode(&value); err != nil {
			if err.Error() != "EOF" {
				wrong = append(wrong, "no YAML: "+err.Error())
			}
			return wrong
		}
		if all, ok := value.(map[string]any); ok && all["jobs"] != nil {
			value = all["jobs"]
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, job := range list {
			if fields, ok := job.(map[string]any); ok && fields["name"] != nil {
				wrong = append(wrong, s.check(s["JobInput"], job, "")...)
				wrong = append(wrong, invalidJob(job)...)
			}
		}
	}
}

func (s schemas) wrong(value any) (wrong []string) {
	most := -1
	for _, name := range slices.Sorted(maps.Keys(s)) {
		here := s.check(s[name], value, "")
		if len(here) == 0 {
			return nil
		}
		if n := s.known(name, value); n > most || n == most && len(here) < len(wrong) {
			most, wrong = n, here
		}
	}
	return wrong
}

// known returns how many fields of a value a schema has.
func (s schemas) known(name string, value any) (n int) {
	rules, _ := s[name].(map[string]any)
	properties, _ := rules["properties"].(map[string]any)
	fields, _ := value.(map[string]any)
	for field := range fields {
		if properties[field] != nil {
			n++
		}
	}
	return n
}

// check returns what is wrong with a value by a schema.
func (s schemas) check(schema, value any, at string) (wrong []string) {
	rules, _ := schema.(map[string]any)
	if ref, ok := rules["$ref"].(string); ok {
		return s.check(s[ref[strings.LastIndexByte(ref, '/')+1:]], value, at)
	}
	kinds, listed := rules["type"].([]any)
	if !listed && rules["type"] != nil {
		kinds = []any{rules["type"]}
	}
	kind := kindOf(value)
	if kind == "integer" && slices.Contains(kinds, any("number")) {
		kind = "number"
	}
	if len(kinds) > 0 && !slices.Contains(kinds, any(kind)) {
		return []string{fmt.Sprintf("%s is no %v", at, kinds[0])}
	}
	if choices, ok := rules["enum"].([]any); ok && !slices.Contains(choices, value) {
		return []string{fmt.Sprintf("%s is %v, none of %v", at, value, choices)}
	}
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			wrong = append(wrong, s.check(rules["items"], item, at)...)
		}
	case map[string]any:
		properties, _ := rules["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			field := strings.TrimPrefix(at+"."+name, ".")
			if of, ok := properties[name]; ok {
				wrong = append(wrong, s.check(of, value[name], field)...)
			} else if len(kinds) > 0 && (rules["additionalProperties"] == false || rules["additionalProperties"] == nil) {
				wrong = append(wrong, "there is no field "+field)
			}
		}
	}
	return wrong
}

// kindOf returns the type of a value in the words of JSON Schema.
func kindOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case int:
		return "integer"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
