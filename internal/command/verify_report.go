package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"punctual/store/history"
)

// verifyReport writes each violation as it is found.
type verifyReport struct {
	json     bool      // a JSON object per line instead of text
	terminal io.Writer // for progress; nil: show none
	shown    time.Time // when progress was last shown
	width    int       // of the progress line on the screen
}

func (r *verifyReport) violation(v history.Violation) error {
	r.clear()
	if r.json {
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
	_, err := fmt.Fprintln(os.Stdout, b.String())
	return err
}

// object writes one line of JSON.
func (r *verifyReport) object(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func (r *verifyReport) summary(s history.VerifySummary) error {
	if r.json {
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
	_, err := io.WriteString(os.Stdout, b.String())
	return err
}

// progress shows how far the check is, a few times a second at most.
func (r *verifyReport) progress(s history.VerifySummary) {
	if r.terminal == nil || time.Since(r.shown) < 200*time.Millisecond {
		return
	}
	r.shown = time.Now()
	line := fmt.Sprintf("%d of %d jobs, %d slots, %d violations", s.Jobs, max(s.JobsInAll, s.Jobs), s.Slots, s.Violations)
	fmt.Fprintf(r.terminal, "\r%-*s", r.width, line)
	r.width = len(line)
}

// clear removes the progress line, so that a lasting line can take its place.
func (r *verifyReport) clear() {
	if r.width > 0 {
		fmt.Fprintf(r.terminal, "\r%*s\r", r.width, "")
		r.width = 0
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
