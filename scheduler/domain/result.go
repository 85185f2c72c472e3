package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxResult bounds the result of a run, in bytes.
const MaxResult = 64 << 10

// MaxNesting bounds how deep arrays and objects nest in the JSON of callers and targets: it is parsed by recursion.
const MaxNesting = 64

// UnfitJSON returns why well-formed JSON of callers and targets cannot be kept; empty: it can. Of what SQL is given
// punctual.data_fault says the same.
func UnfitJSON(raw json.RawMessage) string {
	switch {
	case Nesting(raw) > MaxNesting:
		return fmt.Sprintf("nests deeper than %d levels", MaxNesting)
	case !StorableJSON(raw):
		return `must not hold the character \u0000 or half of a surrogate pair: the database cannot store them`
	}
	return ""
}

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
	case Nesting(raw) > MaxNesting:
		return nil, fmt.Sprintf("the result nests deeper than %d levels, and is not kept", MaxNesting)
	case !StorableJSON(raw):
		return nil, `the result is not kept: it must be valid UTF-8, without \u0000 and without halves of surrogate pairs`
	case !MeasuredJSON(raw):
		return nil, "the result is not kept: it has a number that is larger than 1.7e308 or smaller than 5e-324"
	}
	return raw, ""
}

// ShownJSON returns raw as it may be part of an answer: what is no JSON, or nests too deep to be read, as a text that
// says so. The database may hold what was written by hand.
func ShownJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || json.Valid(raw) {
		return raw
	}
	shown, _ := json.Marshal(fmt.Sprintf("%d bytes that cannot be shown as JSON", len(raw))) // never fails
	return shown
}

// MeasuredJSON reports whether every number of well-formed JSON fits into a float64. Most programs read others as
// infinite or as zero, or fail, and so does Postgres.
func MeasuredJSON(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			length := len(raw[i:]) - len(bytes.TrimLeft(raw[i:], "+-.eE0123456789"))
			number := string(raw[i : i+length])
			digits, _, _ := strings.Cut(strings.ToLower(number), "e")
			value, err := strconv.ParseFloat(number, 64)
			if err != nil || value == 0 && strings.Trim(digits, "-.0") != "" {
				return false
			}
			i += length - 1
		}
	}
	return true
}

// Nesting is how deep arrays and objects of well-formed JSON nest.
func Nesting(raw []byte) (deepest int) {
	level, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// StorableJSON reports whether Postgres can look into a document that contains raw. It stores any json, but its
// operators fail on a whole document with \u0000 or half a surrogate pair anywhere in it. One such body would break
// the views that show a field of every definition.
func StorableJSON(raw json.RawMessage) bool {
	if !utf8.Valid(raw) {
		return false
	}
	half := false // the last thing read was the first half of a surrogate pair
	for i := 0; i < len(raw); {
		if raw[i] != '\\' || i+1 == len(raw) { // there are no backslashes outside of strings
			if half {
				return false
			}
			i++
			continue
		}
		unit, size := rune(-1), 2
		if raw[i+1] == 'u' && i+6 <= len(raw) {
			n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
			if err != nil {
				return true // not JSON; other checks report that
			}
			unit, size = rune(n), 6
		}
		switch {
		case unit == 0:
			return false
		case half != (utf16.IsSurrogate(unit) && unit >= 0xdc00):
			return false
		}
		half = utf16.IsSurrogate(unit) && unit < 0xdc00
		i += size
	}
	return !half
}
