package notice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"punctual/scheduler/domain"
)

// fact is something about a subject that helps to route or to understand a notice.
type fact struct{ name, value string }

// facts returns the cause, and the host, reason, runbook and labels that all jobs of a subject share.
func facts(s Subject) (all []fact) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	add("cause", s.Cause)
	add("host", shared(s, func(n domain.Digest) string { return n.Host }))
	add("reason", shared(s, reasonOf))
	add("runbook", shared(s, func(n domain.Digest) string { return n.Runbook }))
	labels := labelsOf(s)
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		add(name, labels[name])
	}
	return all
}

// labelsOf returns the labels that all jobs of a subject share.
func labelsOf(s Subject) map[string]string {
	if len(s.Jobs) == 0 {
		return nil
	}
	labels := map[string]string{}
	for name, value := range s.Jobs[0].Labels {
		if shared(s, func(n domain.Digest) string { return n.Labels[name] }) == value {
			labels[name] = value
		}
	}
	return labels
}

// shared returns a property that is the same for all jobs of a subject; empty if it is not.
func shared(s Subject, of func(domain.Digest) string) (value string) {
	for i, j := range s.Jobs {
		if i == 0 {
			value = of(j)
		} else if of(j) != value {
			return ""
		}
	}
	return value
}

// reasonOf is why the newest run failed, and errorOf the error.
func reasonOf(n domain.Digest) string {
	return newestRun(n, func(r domain.DigestRun) string { return string(r.Reason) })
}

func errorOf(n domain.Digest) string {
	return newestRun(n, func(r domain.DigestRun) string { return r.Error })
}

func newestRun(n domain.Digest, of func(domain.DigestRun) string) string {
	for _, e := range slices.Backward(n.Events) {
		if len(e.Runs) > 0 && of(e.Runs[0]) != "" {
			return of(e.Runs[0])
		}
	}
	return ""
}

// names names as many jobs of a subject as fit into most bytes, and says how many more there are.
func names(s Subject, most int) string {
	var b strings.Builder
	for i, j := range s.Jobs {
		if b.Len()+len(j.Job) > most {
			return fmt.Sprintf("%s and %d more", b.String(), len(s.Jobs)-i+s.More)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(j.Job)
	}
	if s.More > 0 {
		fmt.Fprintf(&b, " and %d more", s.More)
	}
	return b.String()
}

// oneLine is a text on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
