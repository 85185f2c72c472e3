package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"punctual/httpapi/client"
	"punctual/httpapi/problem"
	"punctual/scheduler/cron"
	"punctual/scheduler/domain"
)

// asked reads the time of which a visitor asks whether a job ran, as people write it: a date and a time, a time of the
// day, yesterday 03:00, monday 03:00 or -2h. It is in a zone, unless it says another offset.
func asked(text string, now time.Time, zone *time.Location) (time.Time, error) {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05 -07:00", "2006-01-02 15:04 -07:00"} {
		if at, err := time.Parse(form, strings.ToUpper(text)); err == nil {
			return at, nil
		}
	}
	if plain, utc := strings.CutSuffix(text, " utc"); utc {
		text, zone = plain, time.UTC
	}
	if wall, ok := wallOf(strings.ToUpper(text)); ok {
		return cron.Local(wall, zone).At, nil
	}
	if back, ok := strings.CutSuffix(text, " ago"); ok {
		text = "-" + strings.ReplaceAll(back, " ", "")
	}
	if length, err := strconv.ParseInt(strings.TrimSuffix(text, "d"), 10, 16); err == nil && strings.HasSuffix(text, "d") {
		return now.Add(time.Duration(length) * 24 * time.Hour), nil
	}
	if length, err := time.ParseDuration(text); err == nil && text[0] == '-' {
		return now.Add(length), nil
	}
	if text == "now" {
		return now, nil
	}
	return onADay(text, now, zone)
}

// onADay reads a time of the day, after the word for a day or without one. Without one, and of a day of the week, it is
// the last that has been.
func onADay(text string, now time.Time, zone *time.Location) (time.Time, error) {
	word, hour, found := strings.Cut(text, " ")
	if !found {
		word, hour = "", text
	}
	var clock time.Time
	var err error
	for _, form := range []string{"15:04:05", "15:04"} {
		if clock, err = time.Parse(form, hour); err == nil {
			break
		}
	}
	if err != nil {
		return time.Time{}, fmt.Errorf(
			"%q is not a time; write 2026-12-01 03:00, 03:00, yesterday 03:00, monday 03:00 or -2h",
			text)
	}
	year, month, day := now.In(zone).Date()
	on := func(back int) time.Time {
		wall := time.Date(year, month, day-back, clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
		return cron.Local(wall, zone).At
	}
	switch word {
	case "today":
		return on(0), nil
	case "yesterday":
		return on(1), nil
	case "tomorrow":
		return on(-1), nil
	}
	for back := range 8 {
		at := on(back)
		weekday := strings.ToLower(at.In(zone).Weekday().String())
		if !at.After(now) && (word == "" || len(word) >= 3 && strings.HasPrefix(weekday, word)) {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a day; write today, yesterday, monday or a date such as 2026-12-01", word)
}

// explain answers whether the job ran at the time that the visitor asks about.
func (v *visit) explain(view *jobView) error {
	at, err := asked(view.At, time.Now(), v.located(v.param))
	if err != nil {
		view.Problem = problem.Invalid(problem.At("query.at", err.Error()))
		return nil
	}
	view.Asked = at
	e, err := call(v, client.ExplainJob, url.Values{"at": {client.Instant(at)}}, view.Job.ID.String())
	if view.Problem, err = refused(err); view.Problem != nil || err != nil {
		return err
	}
	view.Explained = &e
	if view.Nearest = e.NextSlot; e.Slot != nil {
		view.Nearest = nil
	} else if e.NextSlot == nil || e.PreviousSlot != nil && at.Sub(*e.PreviousSlot) < e.NextSlot.Sub(at) {
		view.Nearest = e.PreviousSlot
	}
	return nil
}

// bracketed is a reason of the API with its error.
var bracketed = regexp.MustCompile(`: ([a-z0-9_]+) \(([^()]+)\)`)

var instants = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?Z`)

// toldToPeople says an explanation of the API as people read it: instants in the visitor's zone, reasons in words.
func toldToPeople(explanation, zone string) template.HTML {
	explanation = bracketed.ReplaceAllStringFunc(explanation, func(text string) string {
		m := bracketed.FindStringSubmatch(text)
		reason := domain.Reason(m[1])
		var status *int
		if number, ok := strings.CutPrefix(m[2], "the target answered "); ok && len(number) >= 3 {
			if n, err := strconv.Atoi(number[:3]); err == nil {
				status = &n
			}
		}
		if !slices.Contains(domain.Reasons(), reason) {
			return text
		}
		return ": " + causeOf(&reason, status, &m[2])
	})
	for _, reason := range domain.Reasons() {
		for _, after := range []string{" (", "."} {
			explanation = strings.ReplaceAll(explanation, ": "+string(reason)+after, ": "+reasonWords(&reason)+after)
		}
	}
	return template.HTML(instants.ReplaceAllStringFunc( //nolint:gosec // escaped, but for the times
		template.HTMLEscapeString(explanation), func(text string) string {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				return text
			}
			return string(when(at, zone))
		}))
}

// asks returns the address at which a job's page says whether it ran at an instant.
func asks(path string, at any) string {
	return path + "?" + url.Values{"at": {client.Instant(moment(at))}}.Encode()
}
