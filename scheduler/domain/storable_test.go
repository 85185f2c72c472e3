package domain

import (
	"encoding/json"
	"testing"
)

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
			if got := StorableJSON(json.RawMessage(test.raw)); got != test.want {
				t.Errorf("%s: %v, want %v", test.raw, got, test.want)
			}
		})
	}
}
