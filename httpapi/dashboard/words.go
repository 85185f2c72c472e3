package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strings"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/audit"
	"punctual/store/runs"
)

// scheduleWords says when a job fires.
func scheduleWords(s jobspec.Schedule) string {
	var words string
	switch s.Kind() {
	case jobspec.KindCron:
		var err error
		if words, err = cron.Words(s.Cron); err != nil {
			words = s.Cron
		}
		words += " " + zoneOf(s)
	case jobspec.KindEvery:
		words = "every " + length(s.Every.Value())
	case jobspec.KindAt:
		words = strings.TrimSpace("once, at " + s.At.String() + " " + s.Timezone)
	case jobspec.KindDelay:
		words = "once, " + length(s.Delay.Value()) + " after it was written"
	case jobspec.KindEvent:
		words = "at each event " + s.Event
		if s.Filter != "" {
			words += " with " + string(s.Filter)
		}
	default:
		return "no schedule: runs only when triggered"
	}
	if !s.StartsAt.IsZero() {
		words += ", from " + s.StartsAt.String()
	}
	if !s.EndsAt.IsZero() {
		words += ", until " + s.EndsAt.String()
	}
	return words
}

// slashed lets a line break after the slashes of a text, such as a URL or the name of a zone.
func slashed(text string) template.HTML {
	return template.HTML( //nolint:gosec // escaped
		strings.ReplaceAll(template.HTMLEscapeString(text), "/", "/<wbr>"))
}

// zoneOf returns the zone of a schedule.
func zoneOf(s jobspec.Schedule) string {
	return cmp.Or(s.Timezone, "UTC")
}

// length says how long something is, in the two largest units.
func length(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	switch {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d.Round(time.Millisecond) < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	}
	if d = d.Round(time.Second); d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
	for _, unit := range []struct {
		size, part    time.Duration
		name, smaller string
	}{
		{24 * time.Hour, time.Hour, "d", "h"}, {time.Hour, time.Minute, "h", "min"}, {time.Minute, time.Second, "min", "s"},
	} {
		if d < unit.size {
			continue
		}
		words := fmt.Sprintf("%d %s", d/unit.size, unit.name)
		if rest := d % unit.size / unit.part; rest > 0 {
			words += fmt.Sprintf(" %d %s", rest, unit.smaller)
		}
		return words
	}
	return d.String()
}

// ago says how long an instant lies in the past.
func ago(instant any) string {
	at := moment(instant)
	if at.IsZero() {
		return "never"
	}
	d := time.Since(at)
	if d < 0 {
		return "in " + length(-d)
	}
	return length(d) + " ago"
}

// until says how far in the future an instant lies.
func until(at *time.Time) string {
	switch {
	case at == nil:
		return ""
	case time.Until(*at) < 0:
		return "due for " + length(time.Since(*at))
	}
	return "in " + length(time.Until(*at))
}

// lasted says how long a run took from its first moment to its last.
func lasted(r runs.Run) string {
	if r.StartedAt == nil || r.FinishedAt == nil {
		return ""
	}
	return length(r.FinishedAt.Sub(*r.StartedAt))
}

// share says a share in percent. What is not whole does not look whole.
func share(of float64) string {
	percent := of * 100
	text := strings.TrimSuffix(fmt.Sprintf("%.1f", math.Floor(percent*10)/10), ".0")
	if percent > 99.9 && percent < 100 {
		text = "> 99.9"
	}
	return text + " %"
}

// seconds says how long a number of seconds is.
func seconds(n float64) string { return length(time.Duration(n * float64(time.Second))) }

// brief returns the beginning of an error, which may be long.
func brief(text string) string {
	const most = 120
	letters := []rune(text)
	if len(letters) > most {
		return string(letters[:most]) + "…"
	}
	return text
}

// count says how many there are. The API counts up to 10,000.
func count(n int) string {
	if n >= 10_000 {
		return "10,000+"
	}
	return exact(n)
}

// exact says a number that the API has counted to its end.
func exact(n int) string {
	if n >= 1000 {
		return exact(n/1000) + fmt.Sprintf(",%03d", n%1000)
	}
	return fmt.Sprint(n)
}

// reasonWords says why a run is not a plain success.
func reasonWords(r *domain.Reason) string {
	if r == nil {
		return ""
	}
	if words := reasons[*r]; words != "" {
		return words
	}
	return strings.ReplaceAll(string(*r), "_", " ")
}

// who says who did something, as the API says it. It says nothing if that is unknown.
func who(actor string) string {
	if command, ok := strings.CutPrefix(actor, string(audit.Command)+" "); ok {
		return command + ", by a command on a host"
	}
	if actor == audit.Unnamed || actor == string(audit.Anybody) {
		return ""
	}
	return actor
}

// by says by whom something was done, where that is known.
func by(actor string) string {
	if who := who(actor); who != "" {
		return " by " + who
	}
	return ""
}

// sentence says what became of a run.
func sentence(r runs.Run) string {
	if r.Steps != nil && r.StartedAt != nil {
		return flowSentence(r)
	}
	host := ""
	if r.Request != nil {
		if u, err := url.Parse(r.Request.URL); err == nil {
			host = u.Host
		}
	}
	what := causeOf(r.Reason, r.HTTPStatus, r.Error)
	if r.HTTPStatus != nil && host != "" {
		number := fmt.Sprint(*r.HTTPStatus)
		what = number + " from " + host + strings.TrimPrefix(what, number)
	} else if host != "" && what != "" && !strings.Contains(what, host) {
		what += " (" + host + ")"
	}
	if waits(r) {
		return "Waits for approval since " + ago(r.WaitingFor.Since) + "."
	}
	switch r.Status {
	case domain.StatusSucceeded:
		words := "Succeeded"
		if r.Attempt > 1 {
			words += fmt.Sprintf(" at attempt %d", r.Attempt)
		}
		if took := lasted(r); took != "" {
			words += " in " + took
		}
		return words + "."
	case domain.StatusDead:
		words := "Died after " + plural(r.Attempt, "attempt")
		if len(r.Attempts) > 0 && r.FinishedAt != nil {
			took := length(r.FinishedAt.Sub(r.Attempts[0].StartedAt))
			if r.Attempt == 1 {
				words += ", which took " + took
			} else {
				words += ", " + took + " after the first was sent"
			}
		}
		return words + ": " + what + "."
	case domain.StatusSkipped:
		if r.Cause != nil {
			what += ", because " + r.Cause.Text
		}
		return "Skipped: " + what + "."
	case domain.StatusCancelled:
		return "Cancelled."
	case domain.StatusRetrying:
		return fmt.Sprintf("Attempt %d of %d failed: %s. The next attempt starts %s.", r.Attempt, r.MaxAttempts, what,
			until(r.NextAttemptAt))
	case domain.StatusRunning:
		if r.AcceptedAt != nil {
			return "The target answered 202 " + ago(r.AcceptedAt) + " and is still working."
		}
		return "Running since " + ago(r.StartedAt) + "."
	}
	if r.WaitingFor != nil {
		return "Waiting since " + ago(&r.WaitingFor.Since) + ": " + waitsFor(r.WaitingFor) + "."
	}
	if r.DueAt.After(time.Now()) {
		return "Due " + until(&r.DueAt) + "."
	}
	return "Waiting to be sent."
}

// waitsFor says what a run waits for, in a few words.
func waitsFor(w *runs.WaitingFor) string {
	switch w.Kind {
	case domain.WaitHost:
		return *w.On + " cannot be reached"
	case domain.WaitHanging:
		return "requests to " + *w.On + " time out"
	case domain.WaitGate:
		return "another run of the job is active"
	case domain.WaitTenant:
		return "the tenant is at its limit " + *w.On
	case domain.WaitLimit:
		return "the " + w.What
	case domain.WaitSlots:
		return "the queue's concurrency is used up"
	case domain.WaitFrozen:
		return "its tenant or the deployment is frozen"
	case domain.WaitPaused:
		return "the job is paused"
	}
	return w.What // a sentence
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// reasons says in a few words what docs/reference/reasons.md says in full.
var reasons = map[domain.Reason]string{
	domain.ReasonMissed:         "no replica claimed it in time",
	domain.ReasonPaused:         "the job was paused",
	domain.ReasonOverlap:        "another run of the job was active",
	domain.ReasonLimit:          "max_pending_runs of its runs were waiting",
	domain.ReasonReplaced:       "a newer run took its place",
	domain.ReasonCancelled:      "a user cancelled it",
	domain.ReasonJobDeleted:     "the job was deleted",
	domain.ReasonExpired:        "it expired before it could be sent",
	domain.ReasonAuth:           "its credentials were not available",
	domain.ReasonUnreachable:    "the host could not be reached for too long",
	domain.ReasonTimeout:        "timeout",
	domain.ReasonConnect:        "no connection",
	domain.ReasonTLS:            "TLS failed",
	domain.ReasonBlockedAddress: "the address is not allowed",
	domain.ReasonHTTP4xx:        "refused with 4xx",
	domain.ReasonHTTP5xx:        "answered with 5xx",
	domain.ReasonRedirect:       "redirected elsewhere",
	domain.ReasonGone:           "410 Gone",
	domain.ReasonFailed:         "the target reported a failure",
	domain.ReasonLost:           "its replica vanished",
	domain.ReasonPoison:         "it killed its replicas",
	domain.ReasonSilent:         "the target fell silent",
	domain.ReasonUpstreamFailed: "a step that it depends on did not succeed",
	domain.ReasonRejected:       "a person rejected it",

	domain.ReasonApprovalExpired: "a person neither approved nor rejected it in time",
}
