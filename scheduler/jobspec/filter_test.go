package jobspec

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/quick"
)

func TestAFilterMatchesTopLevelFields(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		filter, body string
		want         bool
	}{
		{``, `{"a": 1}`, true},
		{``, ``, true},
		{``, `"text"`, true},
		{`{"a": 1}`, `{"a": 1}`, true},
		{`{"a": 1}`, `{"a": 1.0}`, true},
		{`{"a": 1}`, `{"a": 10e-1}`, true},
		{`{"a": -0}`, `{"a": 0.00}`, true},
		{`{"a": 1200}`, `{"a": 1.2E3}`, true},
		{`{"a": 1}`, `{"a": -1}`, false},
		{`{"a": 1}`, `{"a": "1"}`, false},
		{`{"a": "1"}`, `{"a": 1}`, false},
		{`{"a": "true"}`, `{"a": true}`, false},
		{`{"a": 9007199254740993}`, `{"a": 9007199254740992}`, false},
		{`{"a": 1e999999999999}`, `{"a": 1e999999999998}`, false},
		{`{"a": 1}`, `{"b": 1}`, false},
		{`{"a": null}`, `{"b": 1}`, false}, // a missing field does not match
		{`{"a": null}`, `{"a": null}`, true},
		{`{"a": ["DE", "AT"]}`, `{"a": "AT"}`, true},
		{`{"a": ["DE", "AT"]}`, `{"a": "FR"}`, false},
		{`{"a": ["DE"]}`, `{"a": ["DE"]}`, false}, // a field with a list equals no value
		{`{"a": "x"}`, `{"a": {"x": 1}}`, false},
		{`{"a": "x"}`, `{"b": {"a": "x"}}`, false},
		{`{"a": 1, "b": true}`, `{"a": 1, "b": true, "c": 2}`, true},
		{`{"a": 1, "b": true}`, `{"a": 1, "b": false}`, false},
		{`{"a": "\u00e9"}`, `{"a": "é"}`, true},
		{`{"a": 1}`, ``, false},
		{`{"a": 1}`, `[{"a": 1}]`, false},
		{`{"a": 1}`, `{"a": 1`, false},
		{`{"a": 1}`, `{"A": 1}`, false},
		{`nonsense`, `{"": 1}`, false},
	} {
		if got := EventFilter(test.filter).Matcher().Matches(FieldsOf([]byte(test.body))); got != test.want {
			t.Errorf("%s matches %s: %t", test.filter, test.body, got)
		}
	}
}

// A body that has a value of each field matches, with whatever else it has; it no longer does if one is another value.
func TestAFilterMatchesWhatHasItsValues(t *testing.T) {
	t.Parallel()
	values := []any{"DE", "", "1", 1, 0.5, -3, 1e21, true, false, nil}
	property := func(seed uint64) bool {
		random := rand.New(rand.NewPCG(seed, 1))
		filter, body := map[string]any{}, map[string]any{"more": []int{1}}
		for i := range 1 + random.IntN(4) {
			name, first := fmt.Sprint("f", i), random.IntN(len(values)-1)
			if body[name] = values[first]; random.IntN(2) == 0 {
				filter[name] = values[first]
			} else {
				filter[name] = []any{values[len(values)-1], values[first]}
			}
		}
		m := EventFilter(encoded(filter)).Matcher()
		if !m.Matches(FieldsOf([]byte(encoded(body)))) || !EventFilter("").Matcher().Matches(FieldsOf([]byte(encoded(body)))) {
			return false
		}
		body["f0"] = "another"
		return !m.Matches(FieldsOf([]byte(encoded(body))))
	}
	if err := quick.Check(property, nil); err != nil {
		t.Error(err)
	}
}

func encoded(v any) string {
	text, _ := json.Marshal(v) //nolint:errchkjson // plain values
	return string(text)
}

func TestSchedulesOfEventsAreChecked(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		`{"event": "invoice.paid"}`:                                             ``,
		`{"event": "a", "filter": {"x": [1, "y", null]}}`:                       ``,
		`{"event": "a", "filter": null}`:                                        ``,
		`{"event": "a b"}`:                                                      `event: "a b": 1 to 128 letters`,
		`{"event": "a", "cron": "* * * * *"}`:                                   `schedule: cron and event are set`,
		`{"event": "a", "starts_at": "2030-01-01T00:00:00Z"}`:                   `schedule: starts_at and ends_at`,
		`{"event": "a", "timezone": "UTC"}`:                                     `timezone: "UTC": only cron and at`,
		`{"every": "1m", "filter": {"x": 1}}`:                                   `filter: only events have a filter`,
		`{"event": "a", "filter": {}}`:                                          `filter: has no fields`,
		`{"event": "a", "filter": "x"}`:                                         `filter: "x": must be an object`,
		`{"event": "a", "filter": {"x": []}}`:                                   `filter.x: an empty list`,
		`{"event": "a", "filter": {"x": {"y": 1}}}`:                             `filter.x: {"y":1}: must be a string`,
		`{"event": "a", "filter": {"x": [[1]]}}`:                                `filter.x: [1]: must be a string`,
		`{"event": "a", "filter": {"x": "` + strings.Repeat("x", 5000) + `"}}`:  `bytes; at most 4096`,
		`{"event": "a", "filter": {"x": [1` + strings.Repeat(", 1", 64) + `]}}`: `65 values; at most 64`,
	} {
		var s Schedule
		must(t, json.Unmarshal([]byte(schedule), &s))
		var all []string
		for _, p := range s.Validate() {
			all = append(all, p.Error())
		}
		if got := strings.Join(all, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%.80s: %q, want %q", schedule, got, want)
		}
	}
}
