package jobspec

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Limits on the filter of an event.
const (
	MaxFilter       = 4096 // bytes
	MaxFilterFields = 16
	MaxFilterValues = 64 // of one field
)

// EventFilter says of which events a job has a run: a JSON object, as it was written. Each of its fields has a value,
// or a list of values, and the field of the same name in the event's body must equal one of them. Empty: all events.
type EventFilter string

// MarshalJSON returns the filter as it was written.
func (f EventFilter) MarshalJSON() ([]byte, error) {
	if f == "" {
		return []byte("null"), nil
	}
	return []byte(f), nil
}

// UnmarshalJSON keeps any JSON, and never fails. Of null it keeps nothing.
func (f *EventFilter) UnmarshalJSON(raw []byte) error {
	var text bytes.Buffer
	if err := json.Compact(&text, raw); err != nil {
		text.Write(raw)
	}
	if *f = EventFilter(text.String()); *f == "null" {
		*f = ""
	}
	return nil
}

// Matcher decides which bodies of events a filter lets through. The zero value lets all through.
type Matcher map[string][]string // the values of a field, each in its one form

// Matcher compiles the filter. A filter that is not valid lets nothing through.
func (f EventFilter) Matcher() Matcher {
	var fields map[string]json.RawMessage
	if f == "" {
		return nil
	}
	m := Matcher{}
	if json.Unmarshal([]byte(f), &fields) != nil || len(fields) == 0 {
		return Matcher{"": nil}
	}
	for name, raw := range fields {
		m[name] = nil
		for _, value := range valuesOf(raw) {
			if form := formOf(value); form != "" {
				m[name] = append(m[name], form)
			}
		}
	}
	return m
}

// EventFields are the top-level fields of an event's body, which many filters look at. A body that is no object has
// none.
type EventFields map[string]json.RawMessage

// FieldsOf reads the body of an event: once, however many filters there are.
func FieldsOf(body []byte) (fields EventFields) {
	_ = json.Unmarshal(body, &fields) // what cannot be read has no fields
	return fields
}

// Matches reports whether each field of the filter is among those of an event and has one of its values.
func (m Matcher) Matches(fields EventFields) bool {
	for name, values := range m {
		value, there := fields[name]
		if !there || !slices.Contains(values, formOf(value)) {
			return false
		}
	}
	return true
}

// valuesOf returns the values of a field of a filter.
func valuesOf(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) && json.Unmarshal(raw, &list) == nil {
		return list
	}
	return []json.RawMessage{raw}
}

// formOf returns the one form of a JSON string, number, boolean or null, so that equal values have equal forms; empty:
// it is none of these. 1, 1.0 and 10e-1 are equal.
func formOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{', '[':
		return ""
	case '"':
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return ""
		}
		return `"` + text
	case 't', 'f', 'n':
		return string(raw)
	}
	return numberForm(string(raw))
}

// numberForm writes a number as its digits, without zeros at either end, and a power of ten.
func numberForm(text string) string {
	text, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	power, err := strconv.ParseInt(exponent, 10, 32)
	if err != nil && exponent != "" {
		return "number " + text + "e" + exponent // beyond any number that is meant: equal only if it is written alike
	}
	text, negative := strings.CutPrefix(text, "-")
	whole, fraction, _ := strings.Cut(text, ".")
	digits := whole + fraction
	power -= int64(len(fraction))
	trimmed := strings.TrimRight(digits, "0")
	power += int64(len(digits) - len(trimmed))
	if trimmed = strings.TrimLeft(trimmed, "0"); trimmed == "" {
		return "number 0"
	}
	if negative {
		trimmed = "-" + trimmed
	}
	return "number " + trimmed + "e" + strconv.FormatInt(power, 10)
}

// filter checks the filter of an event.
func (c *checker) filter(f EventFilter) {
	const right = `write {"country": ["DE", "AT"], "paid": true}`
	var fields map[string]json.RawMessage
	c.atMost("schedule.filter", len(f), "bytes", MaxFilter)
	if json.Unmarshal([]byte(f), &fields) != nil {
		c.add("schedule.filter", "%s: must be an object; %s", clip(string(f)), right)
		return
	}
	if len(fields) == 0 {
		c.add("schedule.filter", "has no fields; leave it out to run at every such event")
	}
	c.atMost("schedule.filter", len(fields), "fields", MaxFilterFields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, values := "schedule.filter."+clip(name), valuesOf(fields[name])
		if len(values) == 0 {
			c.add(field, "an empty list matches nothing; name the values, or leave the field out")
		}
		c.atMost(field, len(values), "values", MaxFilterValues)
		for _, value := range values {
			if formOf(value) == "" {
				c.add(field, "%s: must be a string, a number, true, false or null, or a list of these; %s",
					clip(string(value)), right)
				break
			}
		}
	}
}
