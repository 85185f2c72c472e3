package store

import (
	"encoding/json"
	"strings"

	"punctual/scheduler"
)

// masked stands for what the audit log does not keep.
const masked = "***"

// maybeSecret is what a definition has in it that may hold a secret: most have none of it, and are kept as they are.
var maybeSecret = []string{`"headers"`, `"secret_headers"`, `"auth"`}

// maskDefinition returns a definition for the audit log, without its secrets: the value of an auth, all secret_headers, and
// headers whose name says that they are secret. What cannot be read is not kept at all.
func maskDefinition(text string) string {
	may := false
	for _, word := range maybeSecret {
		may = may || strings.Contains(text, word)
	}
	if !may {
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

// maskIn masks the targets in a value, wherever they are but in a body, and reports whether there was anything to mask.
func maskIn(v any) (changed bool) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			changed = maskIn(item) || changed
		}
	case map[string]any:
		for name, member := range v {
			switch name {
			case "body": // is the receiver's, whatever it looks like
			case "auth":
				changed = maskMembers(member, func(member string) bool { return member == "value" }) || changed
			case "secret_headers":
				changed = maskMembers(member, func(string) bool { return true }) || changed
			case "headers":
				changed = maskMembers(member, scheduler.SecretName.MatchString) || changed
			default:
				changed = maskIn(member) || changed
			}
		}
	}
	return changed
}

// maskMembers masks the members of an object that are chosen. What should be an object and is not is left to nobody.
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

// maskHeaders returns headers for the audit log.
func maskHeaders(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	for name, value := range headers {
		if scheduler.SecretName.MatchString(name) {
			value = masked
		}
		out[name] = value
	}
	return out
}

// maskedOf returns what maskDefinition makes of a definition; nil if that is the definition itself.
func maskedOf(text string) *string {
	out := maskDefinition(text)
	if out == text {
		return nil
	}
	return &out
}
