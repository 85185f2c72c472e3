package domain

import (
	"bytes"
	"encoding/json"
	"fmt"

	"punctual/scheduler/jobspec"
)

// MaxResult bounds the result of a run, in bytes.
const MaxResult = 64 << 10

// MayHaveResult reports whether the body of an answer may have a member "result".
func MayHaveResult(body []byte) bool { return bytes.Contains(body, []byte(`"result"`)) }

// resultOf returns the result in the body of a 2xx JSON answer: the first member "result" of an object; nil when
// there is none, or it is null. note says why a result cannot be kept: the answer remains a success all the same. cut
// means that the body may go on.
func resultOf(body []byte, cut bool) (result json.RawMessage, note string) {
	if !MayHaveResult(body) {
		return nil, ""
	}
	if !cut && !json.Valid(body) {
		return nil,
			"the answer is not JSON, or is no longer JSON after secrets were removed; a result in it is not kept"
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if opening, err := d.Token(); err != nil || opening != json.Delim('{') {
		return nil, ""
	}
	for d.More() {
		var value json.RawMessage
		name, err := d.Token()
		if err != nil {
			return nil, "" // cut within a name
		}
		err = d.Decode(&value)
		switch {
		case name != "result" && err != nil:
			return nil, ""
		case name != "result":
			continue
		case err != nil:
			return nil, fmt.Sprintf(
				"the answer is longer than Punctual reads, and its result is incomplete; at most %d bytes (64 KiB) are kept",
				MaxResult)
		}
		return CheckResult(value)
	}
	return nil, ""
}

// CheckResult returns the result as it is kept, nil for null, or why it cannot be kept.
func CheckResult(raw json.RawMessage) (result json.RawMessage, problem string) {
	raw = bytes.TrimSpace(raw)
	switch {
	case len(raw) == 0, bytes.Equal(raw, []byte("null")):
		return nil, ""
	case len(raw) > MaxResult:
		return nil, fmt.Sprintf("the result has %d bytes; at most %d (64 KiB) are kept", len(raw), MaxResult)
	case jobspec.Nesting(raw) > jobspec.MaxNesting:
		return nil, fmt.Sprintf("the result nests deeper than %d levels, and is not kept", jobspec.MaxNesting)
	case !jobspec.StorableJSON(raw):
		return nil, `the result is not kept: it must be valid UTF-8, without \u0000 and without halves of surrogate pairs`
	case !jobspec.MeasuredJSON(raw):
		return nil, "the result is not kept: it has a number that is larger than 1.7e308 or smaller than 5e-324"
	}
	return raw, ""
}
