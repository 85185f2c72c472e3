package jobspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"punctual/scheduler/placeholder"
)

// Problem is one thing that is wrong with a definition. Field is the path of the field in its JSON, and Message says
// what would be right.
type Problem struct {
	Field   string
	Message string
}

func (p Problem) Error() string { return p.Field + ": " + p.Message }

// Limits on definitions.
const (
	MaxPayload     = 256 << 10 // bytes of a body
	MaxTimeout     = 24 * time.Hour
	MaxDescription = 4096 // bytes
	MaxLabels      = 32
	MaxHeaders     = 64
	MaxAttempts    = 100
	MaxNotify      = 10
	MaxLinks       = 10
	MaxChain       = 50 // jobs that follow each other
	MaxLimits      = 4
	MaxPendingRuns = 100_000

	MaxKeepResponse = 64 << 10 // bytes of a response
)

var (
	// NameForm is the form of the names of jobs, tenants and secrets.
	NameForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
	queueForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	labelForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	uuidForm  = regexp.MustCompile(`(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)
)

// NameRule says what NameForm matches, after "must be" or "is".
const NameRule = "1 to 128 letters, digits and . _ : -, the first a letter or digit"

// checker collects what is wrong with a definition.
type checker struct{ problems []Problem }

func (c *checker) add(field, format string, args ...any) {
	c.problems = append(c.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

// check adds what an error says, if there is one.
func (c *checker) check(field string, err error) {
	if err != nil {
		c.add(field, "%v", err)
	}
}

// atMost refuses more than so many bytes, labels or the like.
func (c *checker) atMost(field string, n int, what string, most int) {
	if n > most {
		c.add(field, "%d %s; at most %d", n, what, most)
	}
}

// text refuses what Postgres cannot store in a text.
func (c *checker) text(field, value string) {
	if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
		c.add(field, "must be valid UTF-8 without NUL characters")
	}
}

// ValidateDuration returns what is wrong with a duration that must lie within bounds, if it is there.
func ValidateDuration(field string, d Duration, shortest, longest time.Duration) []Problem {
	var c checker
	c.duration(field, d, shortest, longest)
	return c.problems
}

func (c *checker) duration(field string, d Duration, shortest, longest time.Duration) {
	switch {
	case d.IsZero():
	case d.bad:
		c.add(field, "%s", NotADuration(d.text))
	case field == "timeout" && d.value > longest:
		c.add(field,
			"%q is outside %s to %s; a target that works for longer answers 202 and calls back: see completion",
			d.text, Short(shortest), Short(longest))
	case d.value < shortest || d.value > longest:
		c.add(field, "%q is outside %s to %s", d.text, Short(shortest), Short(longest))
	}
}

func (c *checker) instant(field string, i Instant) {
	switch {
	case i.IsZero():
	case i.bad:
		_, err := ParseInstant(i.text)
		c.add(field, "%q %v", clip(i.text), err)
	case i.value.Before(earliest) || !i.value.Before(latest):
		c.add(field, "%q is outside the years 1970 to 2199", i.text)
	}
}

// oneOf refuses a value that is none of the choices. An absent one has a default.
func oneOf[T ~string](c *checker, field string, value T, choices ...T) {
	if value != "" && !slices.Contains(choices, value) {
		notOneOf(c, field, value, choices)
	}
}

func notOneOf[T ~string](c *checker, field string, value T, choices []T) {
	words := texts(choices)
	c.add(field, "%q is not one of %s%s",
		clip(string(value)), strings.Join(words, ", "), DidYouMean(string(value), words...))
}

func texts[T ~string](words []T) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

func clip(s string) string { return placeholder.Clip(s) }
