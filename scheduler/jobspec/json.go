package jobspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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

// MaxNesting bounds how deep arrays and objects nest in the JSON of callers and targets: it is parsed by recursion.
const MaxNesting = 64
