package jobspec

import (
	"fmt"
	"slices"
	"strings"
)

// Hints for people who come from other systems: what they write, and what it is called here. A hint never guesses:
// what it proposes is valid, and means what was written. So nothing is proposed for numbers without a unit.

// synonyms are words of other systems, by the word that Punctual uses.
var synonyms = map[string][]string{
	"dead":      {"failed", "failure", "error", "errored"},
	"failing":   {"failed", "failure", "error", "errored"},
	"succeeded": {"success", "successful", "ok", "complete", "completed", "done", "finished"},
	"pending":   {"queued", "waiting", "scheduled", "enqueued"},
	"running":   {"active", "in_progress", "started", "executing"},
	"retrying":  {"retry", "backoff"},
	"cancelled": {"canceled", "aborted", "killed"},
	"skipped":   {"missed", "ignored"},
	"completed": {"done", "finished", "ended", "expired"},
	"paused":    {"disabled", "suspended", "inactive", "stopped"},
	"active":    {"enabled", "running", "on"},
	"schedule":  {"scheduled", "cron"},
	"manual":    {"trigger", "triggered", "user", "adhoc"},
	"http_5xx":  {"500", "502", "503", "504", "5xx"},
	"http_4xx":  {"400", "401", "403", "404", "4xx"},
	"connect":   {"connection", "refused", "dns"},
	"high":      {"urgent", "critical", "highest"},
	"low":       {"lowest", "background"},
	"normal":    {"default", "medium"},
	"forbid":    {"deny", "disallow", "no", "none", "never"},
	"allow":     {"parallel", "yes", "always"},
	"replace":   {"cancel", "restart"},
	"wait":      {"queue", "serial"},
}

// DidYouMean returns "; did you mean x?" for the choice closest to a word; empty when none is close.
func DidYouMean(word string, choices ...string) string {
	lower := strings.ToLower(word)
	best, near := 3, ""
	for _, choice := range choices {
		if d := distance(lower, choice); d < best && d*2 < len(choice) {
			best, near = d, choice
		}
		if best > 0 && slices.Contains(synonyms[choice], lower) {
			best, near = 0, choice
		}
	}
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", near)
}

// distance is the number of letters to insert, delete or replace to turn a into b. Names that differ by more than two
// in length are far apart: nobody mistakes one for the other.
func distance(a, b string) int {
	if max(len(a), len(b))-min(len(a), len(b)) > 2 {
		return 3
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
