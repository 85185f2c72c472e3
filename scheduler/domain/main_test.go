package domain

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"punctual/scheduler/jobspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobID is the id of the job in most tests.
var jobID = uuid.MustParse("0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01")

// runID is the id of the run in most tests, which is that of the job's slot at 03:00.
const runID = "01a128e7-2780-8804-a169-8fb691c134cb"

// must ends the test if there is an error.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// definition returns a definition from JSON, with a default name and target.
func definition(t rapid.TB, text string) jobspec.Definition {
	t.Helper()
	d := jobspec.Definition{Name: "job", Target: jobspec.Target{URL: "http://127.0.0.1:9/hook"}}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// lasting returns a duration as a definition has it.
func lasting(text string) (d jobspec.Duration) {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return d
}

// compiled returns a job from the JSON of a definition, which it validates as the API does.
func compiled(t rapid.TB, text string) *Job {
	t.Helper()
	return compiledAs(t, jobID, text)
}

func compiledAs(t rapid.TB, id uuid.UUID, text string) *Job {
	t.Helper()
	d := definition(t, text)
	if problems := d.Validate(); problems != nil {
		t.Fatalf("%s: %v", text, problems)
	}
	job, err := Compile(id, 1, 1, d, 0)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return job
}

// instant parses an instant such as "2026-10-11T03:00:00Z". Parts that are left out on the left are those of
// 2026-10-11: "03:00", "03:00:01.5".
func instant(t testing.TB, text string) time.Time {
	t.Helper()
	for _, form := range []struct{ prefix, suffix string }{
		{"", ""}, {"2026-10-11T", "Z"}, {"2026-10-11T", ":00Z"}, {"2026-10-", "Z"}, {"2026-10-", ":00Z"},
	} {
		if at, err := time.Parse(time.RFC3339Nano, form.prefix+text+form.suffix); err == nil {
			return at.UTC()
		}
	}
	t.Fatalf("%q is no instant", text)
	return time.Time{}
}
