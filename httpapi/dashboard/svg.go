package dashboard

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"

	"punctual/scheduler/domain"
	"punctual/store/runs"
)

// Plots are drawn here, as SVG without styles of its own: the style sheet colours the classes.

// strip draws the outcomes of runs, the oldest first, each a link to its run.
func strip(list []runs.Run) template.HTML {
	if len(list) == 0 {
		return ""
	}
	const width, gap, height = 8, 2, 28
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="strip" role="group" aria-label="%s" viewBox="0 0 %d %d" width="%d" height="%d">`,
		template.HTMLEscapeString(outcomesOf(list)), len(list)*(width+gap), height, len(list)*(width+gap), height)
	for i, r := range slices.Backward(list) {
		x := (len(list) - 1 - i) * (width + gap)
		title := fmt.Sprintf("%s %s", mark(r.ScheduledFor, "time", ""), r.Status)
		if r.Reason != nil {
			title += ": " + reasonWords(r.Reason)
		}
		fmt.Fprintf(&b, `<a href="/runs/%s" tabindex="-1"><title>%s</title>`, r.ID, template.HTMLEscapeString(title))
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="0" width="%d" height="%d" rx="2"/></a>`, r.Status, x, width, height)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // everything in it is escaped or a number
}

func outcomesOf(list []runs.Run) string {
	counts := map[domain.Status]int{}
	for _, r := range list {
		counts[r.Status]++
	}
	return outcomes(counts, len(list))
}

// outcomes says in words what a strip shows.
func outcomes(counts map[domain.Status]int, all int) string {
	var parts []string
	for _, status := range domain.Statuses() {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	return "The last " + plural(all, "run") + ": " + strings.Join(parts, ", ")
}

// plot draws a figure of the runs of a list over time: duration, or lateness.
func plot(list []runs.Run, what string) template.HTML {
	points := pointsOf(list, what)
	if len(points) < 2 {
		return ""
	}
	slices.SortFunc(points, func(a, b point) int { return a.at.Compare(b.at) })
	const width, height, left, bottom = 640, 140, 56, 18
	first, last := points[0].at, points[len(points)-1].at
	top := 0.0
	for _, p := range points {
		top = max(top, p.seconds)
	}
	top = roundUp(top)
	span := max(last.Sub(first).Seconds(), 1)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" role="img" aria-label="%s" viewBox="0 0 %d %d" preserveAspectRatio="none">`,
		template.HTMLEscapeString(summary(points, what)), width, height)
	for _, share := range []float64{0, 0.5, 1} {
		y := float64(height-bottom) - share*float64(height-bottom-8)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f">%s</text>`,
			left, width, y, y, left-6, y+4, seconds(share*top))
	}
	for _, p := range points {
		x := left + 4 + p.at.Sub(first).Seconds()/span*float64(width-left-10)
		y := float64(height-bottom) - p.seconds/top*float64(height-bottom-8)
		fmt.Fprintf(&b, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"><title>%s: %s</title></circle>`,
			p.class, x, y, mark(p.at, "time", ""), seconds(p.seconds))
	}
	fmt.Fprintf(&b, `<text class="from" x="%d" y="%d">%s</text><text class="to" x="%d" y="%d">%s</text></svg>`,
		left, height-4, mark(first, "axis", ""), width, height-4, mark(last, "axis", ""))
	return template.HTML(b.String()) //nolint:gosec // everything in it is escaped or a number
}

type point struct {
	at      time.Time
	seconds float64
	class   string
}

// unhurried are the triggers of runs that have no lateness: see runs.LateFor.
var unhurried = []domain.Trigger{domain.TriggerBackfill, domain.TriggerReplay}

func pointsOf(list []runs.Run, what string) (points []point) {
	for _, r := range list {
		if r.StartedAt == nil {
			continue
		}
		switch {
		case what == "duration" && r.FinishedAt != nil:
			points = append(points, point{r.ScheduledFor, r.FinishedAt.Sub(*r.StartedAt).Seconds(), string(r.Status)})
		case what == "lateness" && r.Attempt == 1 && !slices.Contains(unhurried, r.Trigger):
			points = append(points, point{r.ScheduledFor, max(0, r.StartedAt.Sub(r.DueAt).Seconds()), string(r.Status)})
		}
	}
	return points
}

// summary says in words what a plot shows.
func summary(points []point, what string) string {
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.seconds
	}
	slices.Sort(values)
	at := func(share float64) string {
		return seconds(values[int(share*float64(len(values)-1))])
	}
	return fmt.Sprintf("%s of %s: median %s, 95th percentile %s, longest %s", what, plural(len(points), "run"), at(0.5),
		at(0.95), at(1))
}

// recentStrip draws the outcomes of the newest runs of a job in a list, the oldest first.
func recentStrip(recent *runs.RecentRuns) template.HTML {
	if recent == nil || len(recent.Runs) == 0 {
		return `<span class="none">never ran</span>`
	}
	const width, gap, height = 5, 1, 16
	paths := map[domain.Status]string{}
	counts := map[domain.Status]int{}
	for i, r := range recent.Runs {
		x := (runs.MostRecent - 1 - i) * (width + gap)
		paths[r.Status] += fmt.Sprintf("M%d 0h%dv%dh-%dz", x, width, height, width)
		counts[r.Status]++
	}
	const wide = runs.MostRecent * (width + gap)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="strip" role="img" aria-label="%s" viewBox="0 0 %d %d" width="%d" height="%d">`,
		template.HTMLEscapeString(outcomes(counts, len(recent.Runs))), wide, height, wide, height)
	for _, status := range domain.Statuses() {
		if path := paths[status]; path != "" {
			fmt.Fprintf(&b, `<path class="%s" d="%s"/>`, status, path)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) //nolint:gosec // everything in it is escaped or a number
}

// spark draws a small figure of each hour.
func spark(values []float64, words string) template.HTML {
	var top float64
	for _, v := range values {
		top = max(top, v)
	}
	const width, gap, height = 5, 1, 20
	var path strings.Builder
	for i, v := range values {
		if v > 0 {
			tall := max(1, v/top*height)
			fmt.Fprintf(&path, "M%d %dv-%.1fh%dv%.1fz", i*(width+gap), height, tall, width, tall)
		}
	}
	wide := len(values) * (width + gap)
	return template.HTML(fmt.Sprintf( //nolint:gosec // numbers, and words of this package
		`<svg class="spark" role="img" aria-label="%s" viewBox="0 0 %d %d" width="%d" height="%d"><title>%s</title>`+
			`<path class="base" d="M0 %dh%dv1h-%dz"/><path d="%s"/></svg>`,
		words, wide, height, wide, height, words, height-1, wide, wide, path.String()))
}

// roundUp returns the next 1, 2 or 5 times a power of ten.
func roundUp(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*power {
			return m * power
		}
	}
	return v
}
