package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/httpapi/client"
	"punctual/store/runs"
)

// timelineView is the runs of an hour or a day as bars, a line for each job or queue.
type timelineView struct {
	From, To       time.Time
	Span           string // 1h or 24h
	By             string // job or queue
	Earlier, Later string // the addresses of the windows before and after
	Bars           template.HTML
	Shown          int
	On             bool      // it goes on from newer runs of this window
	Pinned         string    // the address of this window, whenever it is opened
	Older          string    // the address of the older runs of this window; empty: there are none
	Back           time.Time // the slot of the last run that is shown, if there are older ones
	Left           int       // jobs or queues that have no line
}

// mostBars and mostLines bound what a timeline shows: the newest runs, of the jobs or queues with the most runs.
const (
	mostBars  = 500
	mostLines = 40
)

// scaleParts is how many parts the scale of a timeline has.
const scaleParts = 6

func (v *visit) timeline() error {
	view := timelineView{Span: "1h", By: "job"}
	if v.param("by") == "queue" {
		view.By = "queue"
	}
	span := time.Hour
	if v.param("span") == "24h" {
		view.Span, span = "24h", 24*time.Hour
	}
	view.To = time.Now().Add(time.Minute).Truncate(time.Minute)
	if at, err := time.Parse(time.RFC3339, v.param("to")); err == nil {
		view.To = at
	}
	view.From = view.To.Add(-span)
	address := func(to time.Time) string {
		return "/timeline?" + url.Values{"span": {view.Span}, "by": {view.By}, "to": {client.Instant(to)}}.Encode()
	}
	view.Earlier, view.Pinned = address(view.From), address(view.To)
	if view.To.Before(time.Now()) {
		view.Later = address(view.To.Add(span))
	}
	selection := url.Values{
		"from": {client.Instant(view.From)}, "to": {client.Instant(view.To)}, "view": {"summary"},
		"limit": {fmt.Sprint(mostBars)},
	}
	if cursor := v.param("cursor"); cursor != "" {
		view.On = true
		selection.Set("cursor", cursor)
	}
	list, err := call(v, client.Runs, selection)
	if err != nil {
		return err
	}
	view.Shown = len(list.Data)
	if list.NextCursor != nil { // not an instant: more runs than are shown may have the same slot
		view.Older = query(address(view.To), "cursor", *list.NextCursor)
		view.Back = list.Data[view.Shown-1].ScheduledFor
	}
	view.Bars, view.Left = timelineOf(list.Data, view.By, view.From, view.To)
	return v.show("timeline", "Timeline", view)
}

// timelineOf draws runs as bars from their first moment to their last. It returns how many jobs or queues have no line.
func timelineOf(list []runs.Run, by string, from, to time.Time) (svg template.HTML, left int) {
	lines := map[string][]runs.Run{}
	for _, r := range list {
		name := r.Job
		if by == "queue" {
			name = r.Queue
		}
		lines[name] = append(lines[name], r)
	}
	names := slices.SortedFunc(maps.Keys(lines), func(a, b string) int {
		return cmp.Or(len(lines[b])-len(lines[a]), strings.Compare(a, b))
	})
	if len(names) > mostLines {
		left = len(names) - mostLines
		names = names[:mostLines]
	}
	if len(names) == 0 {
		return "", 0
	}
	rows := make([]barLine, len(names))
	for i, name := range names {
		rows[i].name = name
		for _, r := range lines[name] {
			begin, end := r.ScheduledFor, r.ScheduledFor
			if r.StartedAt != nil {
				begin, end = *r.StartedAt, time.Now()
			}
			if r.FinishedAt != nil {
				end = *r.FinishedAt
			}
			rows[i].bars = append(rows[i].bars, bar{
				r.ID.String(), r.Job + " " + mark(r.ScheduledFor, "time", "") + " " + string(r.Status), string(r.Status),
				begin, end,
			})
		}
	}
	words := plural(len(list), "run") + " of " + plural(len(names), by)
	return drawBars(rows, words, from, to, func(at time.Time) string { return mark(at, "scale", "") }), left
}

// barLine is a line of bars on a common axis.
type barLine struct {
	name string
	bars []bar
}

// bar is a run from its first moment to its last.
type bar struct {
	run, title, class string
	begin, end        time.Time
}

// drawBars draws lines of bars. The words say what they show, and scale says an instant of their axis.
func drawBars(lines []barLine, words string, from, to time.Time, scale func(time.Time) string) template.HTML {
	const width, line = 1000, 22
	height := len(lines) * line
	at := func(t time.Time) float64 {
		return min(max(t.Sub(from).Seconds()/to.Sub(from).Seconds(), 0), 1) * width
	}
	var b strings.Builder
	b.WriteString(`<div class="names">`)
	for _, l := range lines {
		fmt.Fprintf(&b, `<span>%s</span>`, template.HTMLEscapeString(shortened(l.name, 28)))
	}
	b.WriteString(`</div><div class="scale">`)
	for i := range scaleParts {
		fmt.Fprintf(&b, `<span>%s</span>`, scale(from.Add(to.Sub(from)*time.Duration(i)/scaleParts)))
	}
	fmt.Fprintf(&b, `</div><svg class="bars" role="group" aria-label="%s" viewBox="0 0 %d %d" height="%[3]d" `+
		`preserveAspectRatio="none">`, words, width, height)
	for i := range scaleParts + 1 {
		fmt.Fprintf(&b, `<line x1="%d" x2="%[1]d" y1="0" y2="%d"/>`, i*width/scaleParts, height)
	}
	for i, l := range lines {
		for _, r := range l.bars {
			x := at(r.begin)
			fmt.Fprintf(&b, `<a href="/runs/%s" tabindex="-1"><title>%s</title>`, r.run, template.HTMLEscapeString(r.title))
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/></a>`,
				r.class, x, i*line+3, max(at(r.end)-x, 2.5), line-6)
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // everything in it is escaped or a number
}

// shortened keeps the end of a name that is longer than there is room for.
func shortened(name string, most int) string {
	if letters := []rune(name); len(letters) > most {
		return "…" + string(letters[len(letters)-most:])
	}
	return name
}
