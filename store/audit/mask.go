package audit

import (
	"encoding/json"
	"slices"
	"strings"

	"punctual/scheduler/jobspec"
)

// masked replaces a value that the audit log does not keep.
const masked = "***"

// maybeSecret lists the members of a definition that may hold a secret. Most definitions have none of them and are kept
// unchanged.
var maybeSecret = []string{`"headers"`, `"secret_headers"`, `"auth"`}

// MaskDefinition returns a definition for the audit log, without its secrets: it masks the value of an auth, all
// secret_headers, and the headers whose name marks them as secret. A definition that cannot be parsed is not kept at
// all.
func MaskDefinition(text string) string {
	if !slices.ContainsFunc(maybeSecret, func(word string) bool { return strings.Contains(text, word) }) {
		return text
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return `"` + masked + `"`
	}
	if !maskIn(v) {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return `"` + masked + `"`
	}
	return string(out)
}

// maskIn masks the targets anywhere in a value, except in a body, and reports whether it masked anything.
func maskIn(v any) (changed bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			changed = maskIn(item) || changed
		}
	case map[string]any:
		for name, member := range v {
			switch name {
			case "body": // belongs to the receiver, whatever it looks like
			case "auth":
				changed = maskMembers(member, func(member string) bool { return member == "value" }) || changed
			case "secret_headers":
				changed = maskMembers(member, func(string) bool { return true }) || changed
			case "headers":
				changed = maskMembers(member, jobspec.SecretName.MatchString) || changed
			default:
				changed = maskIn(member) || changed
			}
		}
	}
	return changed
}

// maskMembers masks the chosen members of an object. It leaves a value that is not an object as it is.
func maskMembers(v any, choose func(name string) bool) (changed bool) {
	object, ok := v.(map[string]any)
	if !ok {
		return false
	}
	for name := range object {
		if choose(name) {
			object[name], changed = masked, true
		}
	}
	return changed
}

// MaskHeaders returns headers for the audit log.
func MaskHeaders(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	for name, value := range headers {
		if jobspec.SecretName.MatchString(name) {
			value = masked
		}
		out[name] = value
	}
	return out
}

// MaskedOf returns the masked definition, or nil if nothing in it needs a mask.
func MaskedOf(text string) *string {
	out := MaskDefinition(text)
	if out == text {
		return nil
	}
	return &out
}
