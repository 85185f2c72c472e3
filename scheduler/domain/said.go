package domain

import (
	"encoding/json"
	"fmt"
	"strings"

	"punctual/scheduler/delivery/wire"
)

// mostSaid is how many characters of what a target said an error has at most.
const mostSaid = 120

// errorOf returns the error of a failed attempt. Of an answer with a status that is a failure, it has what the body
// says first, as far as the body is kept.
func errorOf(r wire.Result) string {
	if r.Status < 400 {
		return r.Error
	}
	if said := firstLine(string(r.Body)); said != "" {
		return fmt.Sprintf("%s: %s", r.Error, said)
	}
	return r.Error
}

// firstLine returns what an answer says first, in up to 120 characters. Of an object in JSON, that is its message. It
// is empty where the answer says nothing, is a page, or its first line is but a bracket.
func firstLine(answer string) string {
	var object map[string]any
	if json.NewDecoder(strings.NewReader(answer)).Decode(&object) == nil { // more may follow
		if nested, ok := object["error"].(map[string]any); ok {
			object = nested
		}
		for _, name := range []string{"detail", "message", "error_description", "error", "title"} {
			if message, ok := object[name].(string); ok && message != "" {
				return firstLine(message)
			}
		}
	}
	line, _, _ := strings.Cut(strings.TrimSpace(answer), "\n")
	if strings.HasPrefix(line, "<") || line == "{" || line == "[" {
		return ""
	}
	line = strings.TrimSpace(strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(line, "?")))
	if letters := []rune(line); len(letters) > mostSaid {
		return string(letters[:mostSaid]) + "…"
	}
	return line
}
