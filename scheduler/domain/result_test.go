package domain

import (
	"encoding/json"
	"strings"
	"testing"

	"punctual/scheduler/jobspec"
)

func TestWhatResultAnAnswerCarries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxResult)
	for _, c := range []struct {
		name, body string
		cut        bool
		result     string
		note       string // part of the note
	}{
		{"a member", ` { "a" : 1 , "result" : [ 1 ] } `, false, `[ 1 ]`, ""},
		{"the first of two", `{"result":1,"result":2}`, false, `1`, ""},
		{"none in an inner object", `{"a":{"result":1}}`, false, "", ""},
		{"none by another case", `{"RESULT":1,"x":"\"result\""}`, false, "", ""},
		{"none in a string", `{"x":"a \"result\" of","y":["result"]}`, false, "", ""},
		{"not of a list", `["result"]`, false, "", ""},
		{"null is none", `{"result":null}`, false, "", ""},
		{"half of a surrogate pair", `{"result":"\ud800"}`, false, "", "UTF-8"},
		{"a number beyond any other", `{"result":1e999999}`, false, "", "a number that"},
		{
			"a number of 400 digits, deep within",
			`{"result":{"a":[true,-` + strings.Repeat("9", 400) + `]}}`, false, "", "a number that",
		},
		{"a number next to nothing", `{"result":[1e-16384]}`, false, "", "a number that"},
		{"the largest and the least", `{"result":[-1.79e308,5e-324]}`, false, `[-1.79e308,5e-324]`, ""},
		{"nothing, in many ways", `{"result":[0,-0,0.00,0e999999,0E-9]}`, false, `[0,-0,0.00,0e999999,0E-9]`, ""},
		{"such a number in strings", `{"result":{"1e999":"\"1e999"}}`, false, `{"1e999":"\"1e999"}`, ""},
		{"not JSON", `{"result":***}`, false, "", "not JSON"},
		{"rubbish after it", `{"result":1} x`, false, "", "not JSON"},
		{"too long", `{"result":"` + long + `"}`, false, "", "65538 bytes"},
		{"cut after it", `{"result":{"n":1},"more":"xxx`, true, `{"n":1}`, ""},
		{"cut in it", `{"result":"xxx`, true, "", "longer than Punctual reads"},
		{"cut before it", `{"a":"\"result\": xxx`, true, "", ""},
		{"cut in a list", `[{"result":1},`, true, "", ""},
		{
			"brackets in a string do not nest",
			`{"result":"` + strings.Repeat(`[\"`, 70) + `"}`, false, `"` + strings.Repeat(`[\"`, 70) + `"`, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, note := resultOf([]byte(c.body), c.cut)
			if string(result) != c.result || c.note == "" && note != "" || !strings.Contains(note, c.note) {
				t.Errorf("result %.60q, note %q; want %q, %q", result, note, c.result, c.note)
			}
		})
	}
}

func TestStorableJSON(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  string
		want bool
	}{
		{"nothing", ``, true},
		{"plain text", `{"a":"b"}`, true},
		{"other escapes", `"\n\\ \u0001 \u00e4"`, true},
		{"an escaped NUL", `{"a":["\u0000"]}`, false},
		{"a backslash before what looks like one", `"\\u0000"`, true},
		{"a backslash before a NUL", `"\\\u0000"`, false},
		{"a surrogate pair", `"\ud83d\ude00"`, true},
		{"only its first half", `"\ud83d"`, false},
		{"its first half and a letter", `"\ud83dx"`, false},
		{"its first half and another escape", `"\ud83d\n"`, false},
		{"only its second half", `"\uDE00"`, false},
		{"two first halves", `"\ud83d\ud83d"`, false},
		{"broken UTF-8", "\"\xff\"", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := jobspec.StorableJSON(json.RawMessage(test.raw)); got != test.want {
				t.Errorf("%s: %v, want %v", test.raw, got, test.want)
			}
		})
	}
}
