package dashboard

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"punctual/scheduler/domain"
)

// causeOf says in one phrase why something failed, such as 503: upstream ledger is locked.
func causeOf(reason *domain.Reason, status *int, err *string) string {
	said := spelled(text(err))
	if status == nil {
		words := reasonWords(reason)
		switch {
		case said == "", words == "":
			return cmp.Or(said, words)
		case *reason == domain.ReasonTimeout, *reason == domain.ReasonConnect,
			*reason == domain.ReasonUpstreamFailed, *reason == domain.ReasonRejected,
			*reason == domain.ReasonApprovalExpired: // the error says it
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
	if rest != "" {
		return number + ": " + rest
	}
	if name := http.StatusText(*status); name != "" && *status/100 != 2 {
		return number + " " + name
	}
	return number
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
