package domain

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"punctual/scheduler/jobspec"
	"punctual/scheduler/placeholder"
)

func TestSecretsInBodiesAreChecked(t *testing.T) {
	t.Parallel()
	step := func(body string) string {
		return `"steps":[{"name":"a","target":{"url":"http://h/","body":` + body + `}}]`
	}
	for part, want := range map[string]string{
		`"target":{"url":"http://h/","body":{"a":[{"$secret":"billing-token"}]}}`:                             "",
		`"target":{"url":"http://h/","body":{"a":{"$secret":"no such"}}}`:                                     `target.body.a "no such" is not the name of a secret`,
		`"target":{"url":"http://h/","body":{"a":{"$secret":"{{job}}"}}}`:                                     `target.body.a "{{job}}" is not the name of a secret`,
		`"target":{"url":"http://h/","body":{"a":[1,{"$secret":"x","b":1}]}}`:                                 `target.body.a[1] an object with "$secret" has no other member`,
		`"target":{"url":"http://h/","body":{"$secret":1}}`:                                                   `target.body "$secret" must be the name of a secret`,
		`"target":{"url":"http://h/","body":[` + strings.Repeat(`{"$secret":"x"},`, 16) + `{"$secret":"x"}]}`: `target.body 17 secrets; at most 16`,
		step(`{"key":{"$secret":"x"}}`):                                                                       "",
		step(`{"input":{"key":{"$secret":"x"}}}`):                                                             `steps[0].target.body.input a step is sent its input`,
		step(`{"steps":[{"$secret":"x"}]}`):                                                                   `steps[0].target.body.steps a step is sent its input`,
		step(`{"$secret":"x"}`):                                                                               `steps[0].target.body a step is sent more than its own body`,
		step(`{"key":{"$secret":""}}`):                                                                        `steps[0].target.body.key "$secret" must be the name`,
	} {
		var d jobspec.Definition
		must(t, json.Unmarshal([]byte(`{"name":"job",`+part+`}`), &d))
		got := ""
		for _, p := range d.Validate() {
			got += p.Field + " " + p.Message + "\n"
		}
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", part, got, want)
		}
	}
}

func TestADefinitionNamesTheSecretsOfItsBodies(t *testing.T) {
	t.Parallel()
	d := definition(t, `{"target":null,"steps":[{"name":"a","target":{"url":"http://h/",
		"body":{"k":{"$secret":"x"},"l":[{"$secret":"y"}],"k":{"$secret":"z"}}}}]}`)
	if names := slices.Sorted(maps.Values(d.SecretNames())); !slices.Equal(names, []string{"x", "y", "z"}) || !d.HasSecrets() {
		t.Errorf("%v", d.SecretNames())
	}
	if at := d.Path("steps[a].target.body.k"); at != "steps[0].target.body.k" || d.SecretNames()["steps[a].target.body.k"] != "x" {
		t.Errorf("%s, %v", at, d.SecretNames())
	}
}

// Only a definition asks for secrets: what callers, events and steps say is data.
func TestOnlyADefinitionAsksForSecrets(t *testing.T) {
	t.Parallel()
	const data = `{"x":{"$secret":"data"}}`
	job := compiled(t, `{"target":{"url":"http://h/","body":{"at":"{{attempt}}","k":{"$secret":"own"}}}}`)
	bare := compiled(t, `{"target":{"url":"http://h/"}}`)
	var steps jobspec.Definition
	must(t, json.Unmarshal([]byte(`{"name":"flow","steps":[{"name":"a","target":{"url":"http://h/"}},
		{"name":"b","depends_on":["a"],"target":{"url":"http://h/","body":{"k":{"$secret":"own"}}}}]}`), &steps))
	flow, err := Compile(jobID, 1, 1, steps, 0)
	must(t, err)
	step := flow.Step("b")
	given := &Given{Input: []byte(data), Steps: []Told{{Step: "a", Result: []byte(data), Bytes: len(data)}}}
	for name, c := range map[string]struct {
		Assignment
		want string
	}{
		"its own":        {Assignment{Job: job, Attempt: 3}, "own"},
		"of the trigger": {Assignment{Job: job, Body: []byte(data)}, ""},
		"of a chain": {Assignment{
			Job: job, Trigger: TriggerChain, Template: true,
			Body: []byte(`{"k":{"$secret":"own"},"upstream":{"result":` + data + `}}`),
		}, "own"},
		"of the event":     {Assignment{Job: bare, EventBody: []byte(data)}, ""},
		"beside an event":  {Assignment{Job: job, EventBody: []byte(data)}, "own"},
		"of a step":        {Assignment{Job: step, Step: "b", Workflow: jobID, Given: given}, "own"},
		"of a step, alone": {Assignment{Job: step, Step: "b", Workflow: jobID}, "own"},
	} {
		sent := c.Request(Origin{}).Body
		names := []string{}
		for _, s := range c.BodySecrets(sent) {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s asks for %q, want %q", name, sent, got, c.want)
		}
		filled, err := placeholder.FillSecrets(sent, c.BodySecrets(sent), func(string) (string, error) { return "v", nil })
		if shown := c.Sent(Origin{}, instant(t, "03:00")).Body; err != nil || string(shown) != string(sent) ||
			strings.Count(string(filled), `"v"`) != len(names) {
			t.Errorf("%s: shown as %s, sent as %s, %v", name, shown, filled, err)
		}
	}
}
