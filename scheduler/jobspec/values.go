package jobspec

import (
	"strings"
	"time"
)

// Duration is a span of time as a definition writes it: a Go duration string such as "90s" or "24h". It keeps the
// text, so that a definition is echoed as it was written. It also keeps text that is not a duration, so that
// Definition.Validate can report it together with everything else that is wrong.
type Duration struct {
	text  string
	value time.Duration
	bad   bool
}

// DurationOf returns d as a definition would write it.
func DurationOf(d time.Duration) Duration { return Duration{text: d.String(), value: d} }

// mustDuration is for constants.
func mustDuration(text string) Duration {
	var d Duration
	if _ = d.UnmarshalText([]byte(text)); d.bad {
		panic("not a duration: " + text)
	}
	return d
}

// Value returns the span; 0 when it was absent or malformed.
func (d Duration) Value() time.Duration { return d.value }

// IsZero reports whether the field was absent. "0s" is present.
func (d Duration) IsZero() bool { return d.text == "" && !d.bad }

// String returns the text as it was written.
func (d Duration) String() string { return d.text }

// MarshalText returns the text as it was written.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.text), nil }

// UnmarshalText keeps any text, and never fails.
func (d *Duration) UnmarshalText(text []byte) error {
	value, err := time.ParseDuration(string(text))
	*d = Duration{text: string(text), value: value, bad: err != nil}
	return nil
}

// Instant is a point in time as a definition writes it: RFC 3339. Like Duration it keeps its text.
type Instant struct {
	text  string
	value time.Time
	bad   bool
	local time.Time // the value of a text without an offset, as though it were UTC. Such an instant is bad by itself.
}

// InstantOf returns t as a definition would write it, in UTC.
func InstantOf(t time.Time) Instant {
	t = t.UTC()
	return Instant{text: t.Format(time.RFC3339Nano), value: t}
}

// Value returns the instant in UTC; the zero time when it was absent or malformed.
func (i Instant) Value() time.Time { return i.value }

// Local returns what stands on a clock in the schedule's time zone; zero if the instant was written with an offset.
func (i Instant) Local() time.Time { return i.local }

// IsZero reports whether the field was absent.
func (i Instant) IsZero() bool { return i.text == "" && !i.bad }

// String returns the text as it was written.
func (i Instant) String() string { return i.text }

// MarshalText returns the text as it was written.
func (i Instant) MarshalText() ([]byte, error) { return []byte(i.text), nil }

// UnmarshalText keeps any text, and never fails. Of an instant it keeps the letters in upper case, as all can read it.
func (i *Instant) UnmarshalText(text []byte) error {
	*i = Instant{text: string(text), bad: true}
	if value, err := ParseInstant(i.text); err == nil {
		*i = Instant{text: strings.ToUpper(i.text), value: value}
	} else if local, err := ParseInstant(i.text + "Z"); err == nil {
		i.text, i.local = strings.ToUpper(i.text), local
	}
	return nil
}
