package jobspec

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobID is the id of the job in most tests.
var jobID = uuid.MustParse("0199c9a2-7b3c-7d10-9c3e-2f6f3f1d5a01")

// must ends the test if there is an error.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// definition returns a definition from JSON, with a default name and target.
func definition(t rapid.TB, text string) Definition {
	t.Helper()
	d := Definition{Name: "job", Target: Target{URL: "http://127.0.0.1:9/hook"}}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// timetable returns the timetable of a job with the given id and the deployment's default jitter.
func timetable(t testing.TB, id uuid.UUID, text string, defaultJitter time.Duration) *Timetable {
	t.Helper()
	table, err := NewTimetable(id, definition(t, text).WithDefaults(), defaultJitter)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return table
}

// scheduled returns the timetable of a job with the given schedule and no jitter.
func scheduled(t testing.TB, schedule string) *Timetable {
	t.Helper()
	return timetable(t, jobID, `{"schedule":{`+schedule+`}}`, 0)
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
