package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadTakesJobsInEveryForm(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		text string
		want []string // JSON
	}{
		{"a JSON object, byte for byte", `{"name": "a", "x": [1,  2.0]}`, []string{`{"name": "a", "x": [1,  2.0]}`}},
		{"a JSON list", `[{"name":"a"},{"name":"b"}]`, []string{`{"name":"a"}`, `{"name":"b"}`}},
		{"several JSON values", "{\"name\":\"a\"}\n{\"name\":\"b\"}", []string{`{"name":"a"}`, `{"name":"b"}`}},
		{"JSON with a repeated field, which the API refuses", `{"name":"a","name":"b"}`, []string{`{"name":"a","name":"b"}`}},
		{"YAML", "name: a\npaused: true", []string{`{"name":"a","paused":true}`}},
		{"a YAML list", "- name: a\n- name: b", []string{`{"name":"a"}`, `{"name":"b"}`}},
		{"YAML documents", "---\nname: a\n---\n# nothing\n---\n- name: b\n", []string{`{"name":"a"}`, `{"name":"b"}`}},
		{"JSON with a comma too many, which is YAML", `{"name": "a",}`, []string{`{"name":"a"}`}},
		{"numbers", "name: a\nx: [1, 1.0, 1e3, 0x1F, 12345678901234567890, -0]", []string{
			`{"name":"a","x":[1,1.0,1e3,31,12345678901234567890,-0]}`,
		}},
		{"instants and days", "name: a\nx: [2026-12-01T09:00:00Z, 2026-12-01]", []string{
			`{"name":"a","x":["2026-12-01T09:00:00Z","2026-12-01"]}`,
		}},
		{"words", "name: a\nx: [True, yes, on, ~, null, '1', <b>&]", []string{
			`{"name":"a","x":[true,"yes","on",null,null,"1","<b>&"]}`,
		}},
		{"numbers as names", "name: a\nlabels: {1: b, true: c}", []string{`{"labels":{"1":"b","true":"c"},"name":"a"}`}},
		{"defaults", "- &d {name: a, x: 1, y: 2}\n- {<<: *d, name: b, y: 3}\n- {<<: [{z: 4}, *d], name: c}", []string{
			`{"name":"a","x":1,"y":2}`, `{"name":"b","x":1,"y":3}`, `{"name":"c","x":1,"y":2,"z":4}`,
		}},
		{"an alias as a name", "name: &a b\n*a : c", []string{`{"b":"c","name":"b"}`}},
		{"a name that the API refuses", "name: 12", []string{`{"name":12}`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			jobs, err := Read([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, job := range jobs {
				var has struct{ Name any }
				if err := json.Unmarshal(job.JSON, &has); err != nil || fmt.Sprint(has.Name) != job.Name {
					t.Errorf("%s is named %q, error %v", job.JSON, job.Name, err)
				}
				got = append(got, string(job.JSON))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		want string
	}{
		{"", "there is no job in it"},
		{"---\n---\n", "there is no job in it"},
		{"[]", "there is no job in it"},
		{"name: a\n---\nschedule: {every: 1h}", "job 2 has no name"},
		{`[{"name":"a"},{"name":""}]`, "job 2 has no name"},
		{"name: a\n---\nname: a", `job "a" appears twice`},
		{"hello", "job 1 is not an object"},
		{"name: a\nname: b", `line 2: mapping key "name" already defined at line 1`},
		{"name: a\nschedule:\n  cron: */5 * * * *", `line 3: did not find expected alphabetic or numeric character: in YAML, a text that begins with * needs quotes`},
		{"{\n\"name\": \"a\" \"b\"}", "did not find expected ','"},
		{"name: a\nx: &x [*x]", "contains itself"},
		{"name: a\nx: .inf", "+Inf"},
		{"name: a\nx:\n  y: [010]", "line 3: 010 is octal to some programs and decimal to others: write it without the zero, or in quotes"},
		{"name: a\nx: -08", "line 2: -08 is"},
		{"name: a\n? [x]\n: y", "invalid map key"},
	} {
		_, err := Read([]byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
}

// What YAML writes, Read reads as the same.
func TestYAMLIsReadAsItWasMeant(t *testing.T) {
	t.Parallel()
	const text = `{"name":"a","at":"2026-12-01T09:00:00Z","body":{"a":[1.0,1e3,12345678901234567890,true,null,"true","1","",
		"*","EOF","two\nlines","\r\n","\t","\u2028","<b>&'\"","{{run}}","# no comment","- x",": ","yes","0x1F","1_000","~"]}}`
	out, err := YAML(json.RawMessage(text))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := Read([]byte(out))
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	if diff := cmp.Diff(parsed(t, text), parsed(t, string(jobs[0].JSON))); diff != "" {
		t.Errorf("%s\n%s", diff, out)
	}
}

func parsed(t *testing.T, text string) (v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
