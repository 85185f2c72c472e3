package httpapi

import (
	"fmt"
	"strings"
	"time"

	"punctual/httpapi/problem"
	"punctual/scheduler/forecast"
	"punctual/scheduler/jobspec"
)

// Bounds of a forecast.
const (
	defaultForecast = 24 * time.Hour
	furthestAhead   = 7 * 24 * time.Hour
	defaultStep     = time.Minute
	shortestStep    = time.Second
	longestStep     = 24 * time.Hour
	mostSteps       = 7 * 24 * 60
	// leastBehind is how far from may lie before now, at least: a caller rounds down, or has a clock that is slow. It is
	// a step, if that is longer.
	leastBehind = time.Minute
)

// askedWindow is the window that a request asks for. Instants that are absent are zero.
type askedWindow struct {
	from, to time.Time
	step     time.Duration
}

// read returns the window that is asked for, and what is wrong with it at any time.
func (in *forecastInput) read() (w askedWindow, problems []problem.FieldError) {
	var from, to jobspec.Instant
	for _, p := range []struct {
		name, text string
		into       *jobspec.Instant
	}{{"query.from", in.From, &from}, {"query.to", in.To, &to}} {
		if p.text != "" { // an unescaped plus sign arrives as a space
			_ = p.into.UnmarshalText([]byte(strings.ReplaceAll(p.text, " ", "+"))) // never fails
			problems = append(problems, instant(p.name, *p.into)...)
		}
	}
	step, wrong := readStep(in.Step)
	if wrong != "" {
		problems = append(problems, problem.At("query.step", wrong))
	}
	return askedWindow{from.Value(), to.Value(), step}, problems
}

// readStep returns a step, or what is wrong with it.
func readStep(text string) (step time.Duration, wrong string) {
	if text == "" {
		return defaultStep, ""
	}
	step, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, jobspec.NotADuration(text)
	case step < shortestStep || step > longestStep:
		return 0, fmt.Sprintf("%q is outside %s to %s", text, jobspec.Short(shortestStep), jobspec.Short(longestStep))
	case step%time.Second != 0:
		return 0, fmt.Sprintf("%q: must be whole seconds", text)
	}
	return step, ""
}

// bounded reports whether the request names an instant, so that what is wrong with it depends on the time.
func (w askedWindow) bounded() bool { return !w.from.IsZero() || !w.to.IsZero() }

// window returns the window as of an instant.
func (w askedWindow) window(now time.Time) forecast.Window {
	if w.from.IsZero() {
		w.from = time.Unix(0, now.UnixNano()-now.UnixNano()%int64(w.step)).UTC()
	}
	if w.to.IsZero() {
		w.to = w.from.Add(defaultForecast)
	}
	return forecast.Window{From: w.from.UTC(), To: w.to.UTC(), Step: w.step}
}

// check returns what is wrong with the window as of an instant.
func (w askedWindow) check(now time.Time) (problems []problem.FieldError) {
	whole := w.window(now)
	earliest := now.Add(-max(w.step, leastBehind)).Truncate(time.Second)
	latest := now.Add(furthestAhead).Truncate(time.Second)
	blame := func(at, format string, args ...any) {
		problems = append(problems, problem.Atf(at, format, args...))
	}
	last := "query.to"
	if w.to.IsZero() {
		last = "query.from"
	}
	if whole.From.Before(earliest) {
		blame("query.from", "%s is past; write %s or later, or leave it out for now; list-runs has the past",
			stamp(whole.From), stamp(earliest))
	}
	switch {
	case !whole.From.Before(whole.To):
		blame(last, "%s is not after from, %s", stamp(whole.To), stamp(whole.From))
	case whole.To.After(latest):
		blame(last, "the forecast would end at %s; it ends at most 7 days from now, at %s", stamp(whole.To), stamp(latest))
	case whole.Steps() > mostSteps:
		blame("query.step", "%s makes %d steps; at most %d: write %s or longer, or take a shorter window",
			jobspec.Short(w.step), whole.Steps(), mostSteps, jobspec.Short(leastStep(whole.To.Sub(whole.From))))
	}
	return problems
}

// leastStep returns the shortest step that a window may have.
func leastStep(window time.Duration) time.Duration {
	return ((window+mostSteps-1)/mostSteps + time.Second - 1).Truncate(time.Second)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
