package placeholder

import (
	"fmt"
	"slices"
	"strings"
)

// opening and closing enclose a placeholder; literal is how two braces are written that open none.
const (
	opening = "{{"
	closing = "}}"
	literal = "{{{{"
)

// Set is the placeholders that a kind of text may have. Those in the set's dated part have forms.
type Set struct{ names, dated []string }

// ofRuns are the placeholders of an attempt.
var ofRuns = Set{
	names: []string{"scheduled_for", "scheduled_for_local", "run", "attempt", "job"},
	dated: []string{"scheduled_for", "scheduled_for_local"},
}

// NewSet returns a set of placeholders that have no forms. Their values are Values.Texts.
func NewSet(names ...string) Set { return Set{names: names} }

// Template is a text with its placeholders found. The zero value stands for a text with nothing to fill in.
type Template struct{ parts []part }

// part is a literal and the placeholder that follows it, if there is one.
type part struct {
	literal string
	name    string // empty: no placeholder follows
	form    form
}

// IsZero reports whether there is nothing to fill in.
func (t Template) IsZero() bool { return len(t.parts) == 0 }

// Parse finds the placeholders of a text of an attempt.
func Parse(text string) (Template, error) { return ofRuns.Parse(text) }

// Parse finds the placeholders of a text.
func (s Set) Parse(text string) (Template, error) {
	if !strings.Contains(text, opening) {
		return Template{}, nil
	}
	var t Template
	var plain strings.Builder
	for {
		before, rest, found := strings.Cut(text, opening)
		plain.WriteString(before)
		if !found {
			t.parts = append(t.parts, part{literal: plain.String()})
			return t, nil
		}
		if strings.HasPrefix(rest, opening) { // four braces
			plain.WriteString(opening)
			text = rest[len(opening):]
			continue
		}
		inner, after, closed := strings.Cut(rest, closing)
		if !closed {
			return Template{}, fmt.Errorf("%q is not closed by }}; %s stands for two literal braces",
				Clip(opening+rest), literal)
		}
		p, err := s.read(inner)
		if err != nil {
			return Template{}, err
		}
		p.literal = plain.String()
		plain.Reset()
		t.parts = append(t.parts, p)
		text = after
	}
}

// read returns the placeholder that is written between the braces.
func (s Set) read(inner string) (part, error) {
	name, wanted, hasForm := strings.Cut(inner, "|")
	whole := Clip(opening + inner + closing)
	switch {
	case !slices.Contains(s.names, name):
		hint := ""
		if near := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "-", "_"); slices.Contains(s.names, near) {
			hint = fmt.Sprintf("did you mean {{%s}}? ", near)
		}
		return part{}, fmt.Errorf("%q is not a placeholder; %sthe placeholders are %s, and %s stands for two literal braces",
			whole, hint, list(s.names), literal)
	case !hasForm:
		return part{name: name}, nil
	case len(s.dated) == 0:
		return part{}, fmt.Errorf("%q: it has no forms; write {{%s}}", whole, name)
	case !slices.Contains(s.dated, name):
		return part{}, fmt.Errorf("%q: only %s have forms; write {{%s}}", whole, list(s.dated), name)
	}
	i := slices.Index(formNames(), wanted)
	if i < 0 {
		return part{}, fmt.Errorf("%q: there is no form %q; the forms are %s", whole, Clip(wanted), list(formNames()))
	}
	return part{name: name, form: form(i)}, nil
}

// Cut splits a template at the first separator in its literals; found is false when there is none.
func (t Template) Cut(separator string) (before, after Template, found bool) {
	for i, p := range t.parts {
		left, right, ok := strings.Cut(p.literal, separator)
		if !ok {
			continue
		}
		before.parts = append(slices.Clone(t.parts[:i]), part{literal: left})
		after.parts = append([]part{{literal: right, name: p.name, form: p.form}}, t.parts[i+1:]...)
		return before, after, true
	}
	return t, Template{}, false
}

func list(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// Clip shortens a text from outside for an error message.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
