package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"punctual/store"
	"punctual/store/history"
)

// VerifyConfig says what to verify and where to write the result.
type VerifyConfig struct {
	DatabaseURL   string
	From, To      string // RFC 3339; empty: 24 hours before To, and now
	Tenant, Job   string // empty: all
	Grace         time.Duration
	DefaultJitter time.Duration
	JSON          bool      // a JSON object per line instead of text
	Out           io.Writer // violations and summary
	Progress      io.Writer // nil: show no progress
	Log           *slog.Logger
}

// VerifyError is the reason why `punctual verify` does not exit with 0.
type VerifyError struct {
	Violations int   // how many were found
	Err        error // or why the check could not run
}

func (e *VerifyError) Error() string {
	switch {
	case e.Err != nil:
		return "verify: " + e.Err.Error()
	case e.Violations == 1:
		return "verify: 1 violation"
	}
	return fmt.Sprintf("verify: %d violations", e.Violations)
}

func (e *VerifyError) Unwrap() error { return e.Err }

// ExitCode returns 1 for violations and 2 if the check could not run.
func (e *VerifyError) ExitCode() int {
	if e.Err != nil {
		return 2
	}
	return 1
}

// defaultWindow is the length of the window if --from does not set another.
const defaultWindow = 24 * time.Hour

// Verify compares a database's runs and skips with the slots of the jobs' definitions, and writes every difference. It
// returns a *VerifyError if it finds one, or if it could not check.
func Verify(ctx context.Context, c VerifyConfig) error {
	violations, err := verify(ctx, c)
	if violations > 0 || err != nil {
		return &VerifyError{violations, err}
	}
	return nil
}

func verify(ctx context.Context, c VerifyConfig) (violations int, err error) {
	from, to, err := window(c.From, c.To, time.Now())
	if err != nil {
		return 0, err
	}
	options := store.Options{DatabaseURL: c.DatabaseURL, DefaultJitter: c.DefaultJitter, MaxConns: 2, Log: c.Log}
	err = onDatabase(ctx, options, func(db *store.Store) error {
		r := verifyReport{VerifyConfig: c}
		summary, err := db.Verify(ctx, history.VerifyOptions{
			From: from, To: to, Tenant: c.Tenant, Job: c.Job, Grace: c.Grace, Report: r.violation, Progress: r.progress,
		})
		r.clear()
		if err != nil {
			return err
		}
		violations = summary.Violations
		return r.summary(summary)
	})
	return violations, err
}

// window parses the bounds. now is this machine's time. It matters only where a bound is missing, and the store cuts
// the window off at the database's time.
func window(from, to string, now time.Time) (first, last time.Time, err error) {
	last = now
	if to != "" {
		if last, err = instant("--to", to); err != nil {
			return first, last, err
		}
	}
	first = last.Add(-defaultWindow)
	if from != "" {
		if first, err = instant("--from", from); err != nil {
			return first, last, err
		}
	}
	if !first.Before(last) {
		return first, last, fmt.Errorf("--from %s is not before --to %s", first.Format(time.RFC3339),
			last.Format(time.RFC3339))
	}
	return first, last, nil
}

func instant(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("%s: %q is not an RFC 3339 instant, such as 2026-12-01T09:00:00Z", flag, text)
	}
	return t.UTC(), nil
}

// verifyReport writes each violation as it is found.
type verifyReport struct {
	VerifyConfig
	shown time.Time // when progress was last shown
	width int       // of the progress line on the screen
}

func (r *verifyReport) violation(v history.Violation) error {
	r.clear()
	if r.JSON {
		return r.object(v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s  %s", v.Kind, cmp.Or(v.Job, v.JobID.String()))
	if v.Tenant != "" && v.Tenant != "default" {
		fmt.Fprintf(&b, " of %s", v.Tenant)
	}
	if v.Slot != nil {
		fmt.Fprintf(&b, "  %s", v.Slot.Format(time.RFC3339Nano))
	}
	if v.Last != nil && !v.Last.Equal(*v.Slot) {
		fmt.Fprintf(&b, " to %s", v.Last.Format(time.RFC3339Nano))
	}
	if v.Kind == history.ViolationOverdue {
		fmt.Fprintf(&b, " (%s)", plural(v.Count, "slot"))
	}
	fmt.Fprintf(&b, ": %s", v.Detail)
	for i, run := range v.Runs {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		b.WriteString(separator + run.String())
	}
	_, err := fmt.Fprintln(r.Out, b.String())
	return err
}

// object writes one line of JSON.
func (r *verifyReport) object(v any) error {
	e := json.NewEncoder(r.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (r *verifyReport) summary(s history.VerifySummary) error {
	if r.JSON {
		return r.object(struct {
			Summary history.VerifySummary `json:"summary"`
		}{s})
	}
	var b strings.Builder
	for _, note := range s.Notes {
		fmt.Fprintln(&b, note)
	}
	fmt.Fprintf(&b, "From %s to %s: %s, %s, %s, %s", s.From.Format(time.RFC3339), s.To.Format(time.RFC3339),
		plural(s.Jobs, "job"), plural(s.Slots, "slot"), plural(s.Runs, "run"), plural(s.Skips, "recorded skip"))
	fmt.Fprintf(&b, "; %d waiting, %d not checkable.\n", s.Waiting, s.NotCheckable)
	if s.Violations == 0 {
		b.WriteString("No violation: every slot became one run or is covered by one recorded skip, " +
			"and every run has ended, waits, or is held by a live replica.\n")
	} else {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", s.Kinds[kind], kind))
		}
		fmt.Fprintf(&b, "%s: %s.\n", plural(s.Violations, "violation"), strings.Join(kinds, ", "))
	}
	_, err := io.WriteString(r.Out, b.String())
	return err
}

// progress shows how far the check is, a few times a second at most.
func (r *verifyReport) progress(s history.VerifySummary) {
	if r.Progress == nil || time.Since(r.shown) < 200*time.Millisecond {
		return
	}
	r.shown = time.Now()
	line := fmt.Sprintf("%d of %d jobs, %d slots, %d violations", s.Jobs, max(s.JobsInAll, s.Jobs), s.Slots, s.Violations)
	fmt.Fprintf(r.Progress, "\r%-*s", r.width, line)
	r.width = len(line)
}

// clear removes the progress line, so that a lasting line can take its place.
func (r *verifyReport) clear() {
	if r.width > 0 {
		fmt.Fprintf(r.Progress, "\r%*s\r", r.width, "")
		r.width = 0
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
