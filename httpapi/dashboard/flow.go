package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/runs"
)

// flowView is how far the steps of a workflow's run have come.
type flowView struct {
	Graph template.HTML
	Bars  template.HTML // empty: none has started
	Steps []runs.StepState
	Rerun string // the page that reruns it from a step; empty: it cannot be, or not by the visitor
	Ended bool   // a step starts however those before it have ended
	Fewer bool   // edges that follow from others are left out
}

// waits reports whether a run is of a step that waits for approval.
func waits(r runs.Run) bool { return r.WaitingFor != nil && r.WaitingFor.Kind == domain.WaitPerson }

// waitingOf returns the steps of a run that wait for approval: those of a workflow's run, or the run's own.
func waitingOf(r runs.Run) (all []runs.StepState) {
	if waits(r) {
		return []runs.StepState{{
			Name: r.Step, Run: &r.ID, StartedAt: &r.WaitingFor.Since, ApproveBy: r.WaitingFor.Until,
		}}
	}
	for _, s := range r.Steps {
		if s.ApproveBy != nil {
			all = append(all, s)
		}
	}
	return all
}

// flowOf returns the view of a run's steps; nil: it has none.
func flowOf(r runs.Run) *flowView {
	if len(r.Steps) == 0 {
		return nil
	}
	view := flowView{Bars: stepBars(r, time.Now()), Steps: r.Steps}
	nodes := make([]node, len(r.Steps))
	for i, s := range r.Steps {
		n := node{
			Name: s.Name, Note: stepWord(s), Status: s.Status, Title: s.Name + ": " + stepWord(s),
			DependsOn: s.DependsOn, Ended: s.When == jobspec.WhenEnded, Run: text(s.Run),
		}
		if tookOver(s) {
			n.Status += " taken"
		}
		if took := stepTook(s); took != "" {
			n.Note += " · " + took
		}
		if s.Attempt > 1 {
			n.Note += " · " + plural(s.Attempt, "attempt")
		}
		if why := stepWhy(s); why != "" {
			n.Title += ": " + why
		}
		nodes[i], view.Ended = n, view.Ended || n.Ended
	}
	_, edges := edgesOf(nodes)
	for i, n := range nodes {
		view.Fewer = view.Fewer || len(edges[i]) < len(n.DependsOn)
	}
	view.Graph = graph(nodes)
	return &view
}

// definedGraph draws the steps of a definition.
func definedGraph(d jobspec.Definition) template.HTML {
	nodes := make([]node, len(d.Steps))
	for i, s := range d.Steps {
		host := s.Target.Host
		if u, err := url.Parse(s.Target.URL); err == nil && host == "" {
			host = u.Host
		}
		method := cmp.Or(s.Target.Method, "POST")
		note, title := method+" "+shortened(host, 20), method+" "+s.Target.URL
		if s.Approval != nil {
			note, title = "approval", "waits for approval"
		}
		nodes[i] = node{
			Name: s.Name, Note: note, Title: s.Name + ": " + title, DependsOn: s.DependsOn, Ended: s.When == jobspec.WhenEnded,
		}
	}
	return graph(nodes)
}

// flowSentence says what became of a workflow's run that has started.
func flowSentence(r runs.Run) string {
	switch r.Status {
	case domain.StatusSucceeded:
		return "Succeeded in " + lasted(r) + "."
	case domain.StatusDead:
		return "Died after " + lasted(r) + ": " + spelled(cmp.Or(text(r.Error), reasonWords(r.Reason))) + "."
	case domain.StatusCancelled:
		return "Cancelled."
	}
	ended, now := 0, ""
	for _, s := range r.Steps {
		if s.Ended() {
			ended++
		} else if s.Status == string(domain.StatusRunning) {
			now += ", " + s.Name
		}
	}
	words := fmt.Sprintf("Running since %s: %d of %s ended", ago(r.StartedAt), ended, plural(len(r.Steps), "step"))
	if now != "" {
		words += "; now " + strings.TrimPrefix(now, ", ")
	}
	return words + "."
}

// stepWords says the status of a step.
func stepWords(status string) string { return strings.ReplaceAll(status, "_", " ") }

// tookOver reports whether a rerun has taken a step as succeeded.
func tookOver(s runs.StepState) bool { return s.KeptFrom != nil || s.SetBy != nil }

// stepWord says in a word what became of a step.
func stepWord(s runs.StepState) string {
	switch {
	case s.ApproveBy != nil:
		return "waits for approval"
	case s.KeptFrom != nil:
		return "kept"
	case s.SetBy != nil:
		return "set"
	}
	return stepWords(s.Status)
}

// stepTook says how long the latest attempt of a step took, or has taken yet.
func stepTook(s runs.StepState) string {
	switch {
	case s.StartedAt == nil:
		return ""
	case s.FinishedAt != nil:
		return length(s.FinishedAt.Sub(*s.StartedAt))
	case s.Status == string(domain.StatusRunning):
		return length(time.Since(*s.StartedAt).Truncate(time.Second))
	}
	return ""
}

// stepNames lists names of steps. A short one does not break at its hyphens.
func stepNames(names []string) template.HTML {
	var b strings.Builder
	for i, name := range names {
		comma, class := ", ", ""
		if i == len(names)-1 {
			comma = ""
		}
		if len(name) <= 24 {
			class = ` class="whole"`
		}
		fmt.Fprintf(&b, "<span%s>%s</span>%s", class, template.HTMLEscapeString(name), comma)
	}
	return template.HTML(b.String()) //nolint:gosec // escaped
}

// stepWhy says why a step is not a plain success, or has not started.
func stepWhy(s runs.StepState) string {
	if len(s.WaitsFor) > 0 {
		return "waits for " + strings.Join(s.WaitsFor, ", ")
	}
	if s.SetBy != nil {
		return strings.TrimSuffix("by "+*s.SetBy+": "+text(s.Note), ": ")
	}
	return causeOf(s.Reason, nil, s.Error)
}

// stepBars draws when the steps ran, on an axis that begins with the first of them.
func stepBars(r runs.Run, now time.Time) template.HTML {
	var lines []barLine
	var from, to time.Time
	for _, s := range r.Steps {
		if s.StartedAt == nil || s.Run == nil {
			continue
		}
		end := now
		if s.FinishedAt != nil {
			end = *s.FinishedAt
		}
		if from.IsZero() || s.StartedAt.Before(from) {
			from = *s.StartedAt
		}
		if end.After(to) {
			to = end
		}
		title := s.Name + ": " + stepWord(s) + " · " + stepTook(s)
		lines = append(lines, barLine{s.Name, []bar{{s.Run.String(), title, s.Status, *s.StartedAt, end}}})
	}
	if lines == nil {
		return ""
	}
	slices.SortStableFunc(lines, func(a, b barLine) int { return a.bars[0].begin.Compare(b.bars[0].begin) })
	if to.Sub(from) < time.Millisecond {
		to = from.Add(time.Millisecond)
	}
	return drawBars(lines, plural(len(lines), "step"), from, to, func(at time.Time) string { return length(at.Sub(from)) })
}
