package domain

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

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
