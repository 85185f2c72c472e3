package domain

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// stepOf returns an attempt of a step with a target and others before it.
func stepOf(t *testing.T, target jobspec.Target, before []Told) Assignment {
	t.Helper()
	target.URL = "http://target.example"
	d := jobspec.Definition{Name: "w", Steps: []jobspec.Step{{Name: "last", Target: target}}}
	for _, told := range before {
		d.Steps = append(d.Steps, jobspec.Step{Name: told.Step, Target: jobspec.Target{URL: "http://target.example"}})
		d.Steps[0].DependsOn = append(d.Steps[0].DependsOn, told.Step)
	}
	job, err := Compile(uuid.New(), 1, 1, d, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Assignment{
		RunID: uuid.MustParse("019ad964-3b80-7b21-8f6e-1d2c3b4a5968"), Step: "last", Job: job.Step("last"),
		Given: &Given{Steps: before},
	}
}

func TestWhatAStepIsSent(t *testing.T) {
	for _, c := range []struct {
		name, own, method, input string
		before                   []Told
		want                     string
	}{
		{"nothing before it, no input", `{"a":1}`, "", "", nil, `{"a":1}`},
		{"input, with braces", `{"a":1}`, "", `{"x": "{{run}} \u007b\u007brun}}"}`, nil, `{"a":1,"input":{"x": "{{run}} \u007b\u007brun}}"}}`},
		{"its own body has placeholders", `{"at":"{{attempt}}"} `, "", `1`, nil, `{"at":"0","input":1}`},
		{"an empty body", `{ }`, "", `1`, nil, `{"input":1}`},
		{"an input that Go's parser refuses", "", "", strings.Repeat("[", 20000) + strings.Repeat("]", 20000), nil, `{"input":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`},
		{
			"a result", `{"a":1}`, "", "",
			[]Told{{Step: "a", Status: StatusSucceeded, Result: []byte(`{"n":1}`), Bytes: 7}},
			`{"a":1,"steps":{"a":{"status":"succeeded","result":{"n":1}}}}`,
		},
		{
			"no result", "null", "", "",
			[]Told{
				{Step: "b", Status: StatusSucceeded, Note: "it is too large"}, {Step: "a", Status: StatusDead, Reason: ReasonGone},
			},
			`{"steps":{"a":{"status":"dead","reason":"gone","result":null},"b":{"status":"succeeded","result":null,"result_note":"it is too large"}}}`,
		},
		{"no object", `"text"`, "", `{"x":1}`, nil, "text"},
		{"no body", "", "GET", `{"x":1}`, nil, ""},
	} {
		a := stepOf(t, jobspec.Target{Body: json.RawMessage(c.own), Method: c.method}, c.before)
		if c.input != "" {
			a.Given.Input = []byte(c.input)
		}
		r := a.Request(Origin{})
		if got := string(r.Body); got != c.want {
			t.Errorf("%s: %.200s, want %.200s", c.name, got, c.want)
		}
		if isJSON := strings.HasPrefix(c.want, "{"); isJSON != (r.Header["Content-Type"] != nil) {
			t.Errorf("%s: its headers are %v", c.name, r.Header)
		}
	}
}

func TestTheLargestResultsAreLeftOut(t *testing.T) {
	var before []Told
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		before = append(before, Told{Step: name, Run: uuid.New(), Result: bytes.Repeat([]byte("1"), 60<<10), Bytes: 60 << 10})
	}
	before[0].Bytes = 64 << 10
	before[0].Result = nil // it is left out, so it need not be read
	a := stepOf(t, jobspec.Target{}, before)
	var sent struct {
		Steps map[string]struct{ Result json.RawMessage }
	}
	if err := json.Unmarshal(a.Request(Origin{}).Body, &sent); err != nil {
		t.Fatal(err)
	}
	if got, want := string(sent.Steps["a"].Result), `{"bytes":65536,"href":"/v1/runs/`+a.RunID.String()+`/results/a"}`; got != want {
		t.Errorf("the largest result of too many is %.100s, want %s", got, want)
	}
	if got := len(sent.Steps["b"].Result); got != 60<<10 {
		t.Errorf("another one has %d bytes", got)
	}
	if !a.Given.Whole() {
		t.Error("what is left out is missed")
	}
	if a.Given.Steps[1].Result = nil; a.Given.Whole() {
		t.Error("what is to be sent is not missed")
	}
}

// A workflow whose time is up cleans up, and does nothing else.
func TestWhatStartsOnceTheTimeOfAWorkflowIsUp(t *testing.T) {
	d := jobspec.Definition{Steps: steps("a", "b<a", "c<b!", "d<c", "e", "f<e", "g<f!", "h!")}
	id := uuid.New()
	next := CleanUpSteps(d, id, map[string]StepRun{
		"a": {ID: StepRunID(id, "a"), Status: StatusCancelled}, "e": {Status: StatusSucceeded}, "h": {Status: StatusSucceeded},
	})
	if got, want := next.told(id, d.Steps), "c, g, b skipped by a, f skipped by "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, s := range next.Skip {
		if s.Step.Name == "f" && (s.Reason != ReasonTimeout || s.CausedBy != id || s.Error != LateStep) {
			t.Errorf("f is skipped: %+v", s)
		}
	}
	runs := map[string]StepRun{"a": {}, "c": {Status: StatusDead}, "g": {Status: StatusSucceeded}, "h": {}}
	if MayCleanUp(d, runs) {
		t.Error("nothing is left to clean up, and it may")
	}
	if delete(runs, "g"); !MayCleanUp(d, runs) {
		t.Error("g may clean up")
	}
}
