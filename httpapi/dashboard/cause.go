package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"punctual/scheduler/domain"
)

// causeOf says in one phrase why something failed, such as 503: upstream ledger is locked. answer is the beginning of
// what the target answered, where that is known.
func causeOf(reason *domain.Reason, status *int, err *string, answer string) string {
	said := spelled(text(err))
	if status == nil {
		words := reasonWords(reason)
		switch {
		case said == "", words == "":
			return cmp.Or(said, words)
		case *reason == domain.ReasonTimeout, *reason == domain.ReasonConnect: // the error says it
			return said
		}
		return words + ": " + said
	}
	number := fmt.Sprint(*status)
	rest, known := strings.CutPrefix(said, "the target answered "+number)
	if known {
		rest = strings.TrimLeft(rest, ",;: ")
		rest = strings.TrimPrefix(rest, "and ")
	}
	if what := cmp.Or(firstLine(answer), rest); what != "" {
		return number + ": " + what
	}
	if name := http.StatusText(*status); name != "" && *status/100 != 2 {
		return number + " " + name
	}
	return number
}

// firstLine returns what an answer says first. Of an object in JSON, that is its message.
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
	if strings.HasPrefix(line, "<") { // a page
		return ""
	}
	return brief(strings.TrimSpace(line))
}

var shortDurations = regexp.MustCompile(`\b[0-9][0-9.]*(?:h|m|s|ms|µs)(?:[0-9.]+(?:m|s))*(?:\b|$)`)

// spelled writes the durations of an error as the pages do: 5 s for 5s.
func spelled(err string) string {
	return shortDurations.ReplaceAllStringFunc(err, inWords)
}

// inWords writes a duration of the API as the pages do.
func inWords(duration string) string {
	if d, err := time.ParseDuration(duration); err == nil {
		return length(d)
	}
	return duration
}
