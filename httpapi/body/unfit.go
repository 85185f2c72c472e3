package body

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi/problem"
	"punctual/scheduler/jobspec"
)

// expected names the types that huma expects, for people.
var expected = map[string]string{
	validation.MsgExpectedString: "a string", validation.MsgExpectedBoolean: "true or false",
	validation.MsgExpectedNumber: "a number", validation.MsgExpectedInteger: "a number",
	validation.MsgExpectedArray: "a list", validation.MsgExpectedObject: "an object",
}

// What huma says of "" and 0 where only absence has a meaning.
var (
	tooShort = fmt.Sprintf(validation.MsgExpectedMinLength, 1)
	tooSmall = fmt.Sprintf(validation.MsgExpectedMinimumNumber, 1)
)

// insteadOfZero suggests what to write in place of 0, by the name of the field.
var insteadOfZero = map[string]string{
	"max_attempts": "write 1 for one attempt and no retry",
	"multiplier":   "write 1 for equal delays between retries",
}

// unfit returns what huma finds wrong with the type of a value, with a suggestion; empty when it fits. It never repeats
// a string, which may be a secret, but for one that stands for a schedule. The domain judges what is in a value, and
// has the better words for that.
func (w *walk) unfit(p place, raw jsontext.Value) string {
	var value any
	switch kind := raw.Kind(); {
	// Of the character \u0000 in a text with a meaning the domain says more.
	case (p.schema.Type == "" || kind == '"' && !bytes.Contains(raw, []byte(`\u0000`))) &&
		jobspec.UnfitJSON([]byte(raw)) != "":
		return jobspec.UnfitJSON([]byte(raw))
	case kind == '{' || kind == '[':
		value = struct{}{} // in the wrong place, so it need not be read
	case kind == '0':
		// huma takes 1e2 and 1e12 for integers, which Go does not.
		bits, digits := 64, 18
		if p.schema.Maximum != nil {
			bits, digits = 32, 9
		}
		if _, err := strconv.ParseInt(string(raw), 10, bits); err != nil && p.schema.Type == huma.TypeInteger {
			return fmt.Sprintf("must be a whole number, without exponent, of at most %d digits", digits)
		}
		value = stdjson.Number(raw)
	default:
		_ = json.Unmarshal(raw, &value, lenient) // never fails
	}
	var found huma.ValidateResult
	huma.Validate(w.schemas, p.schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, &found)
	for _, err := range found.Errors {
		wrong, ok := errors.AsType[*huma.ErrorDetail](err)
		if !ok {
			continue
		}
		zero := insteadOfZero[p.at[strings.LastIndexByte(p.at, '.')+1:]]
		switch number, _ := strconv.ParseFloat(string(raw), 64); {
		case expected[wrong.Message] != "":
			return wrongType(p, expected[wrong.Message], raw.Kind(), value)
		case wrong.Message == tooShort && p.optional && p.schema.Format == FormatSecret:
			return "must not be empty; leave it out"
		case wrong.Message == tooShort && p.optional:
			return "must not be empty; leave it out for the default"
		case wrong.Message == tooShort:
			return "must not be empty"
		case wrong.Message == tooSmall && number == 0 && zero != "":
			return fmt.Sprintf("must not be 0: %s; leave it out for the default", zero)
		}
	}
	return ""
}

// wrongType says what a value must be, and what it is.
func wrongType(p place, want string, kind jsontext.Kind, value any) string {
	is := kindOf(kind)
	if is == want { // huma takes any number but those that are out of range
		return "is too large for a number"
	}
	if example := instead(p, value); example != "" {
		want += " such as " + example
		if number, ok := value.(stdjson.Number); ok {
			is = "the number " + problem.Clip(number.String())
		}
	}
	return fmt.Sprintf("must be %s, not %s", want, is)
}

// instead suggests what to write in place of a value of the wrong type; empty when it cannot tell.
func instead(p place, value any) string {
	switch v := value.(type) {
	case string:
		if of, ok := p.body().(interface{ Meant(text string) string }); ok {
			return of.Meant(v)
		}
	case stdjson.Number:
		switch p.schema.Format {
		case FormatDuration: // the number may be of seconds or of milliseconds
			return `"90s" with its unit`
		case FormatInstant, FormatLocal, FormatBound:
			if meant, ok := jobspec.InstantMeant(v.String()); ok {
				return strconv.Quote(meant)
			}
			return `"2026-12-01T09:00:00Z"`
		}
	}
	return ""
}

// unknown returns why a field is unknown in its place, with what it may have meant; empty when it is ignored. Bodies
// know the fields that only answers have, and what other systems call theirs.
func (w *walk) unknown(p place, name string) string {
	if of, ok := p.body().(interface {
		SetByServer(field string) (why string, is bool)
	}); ok {
		if why, is := of.SetByServer(name); is {
			return why
		}
	}
	if of, ok := p.body().(interface {
		Elsewhere(field string) (here string)
	}); ok {
		if here := of.Elsewhere(name); here != "" {
			return "unknown field; " + here
		}
	}
	names := slices.Sorted(maps.Keys(p.schema.Properties))
	for _, outer := range names {
		if inner := w.resolved(place{schema: p.schema.Properties[outer]}); inner.schema.Properties[name] != nil {
			return fmt.Sprintf("unknown field; did you mean %s.%s?", outer, name)
		}
	}
	return "unknown field" + jobspec.DidYouMean(name, names...)
}

// LeaveOut is why a body may not set what the server sets.
const LeaveOut = "unknown field: it is set by the server; leave it out"

// kindOf names a kind of value, for people.
func kindOf(kind jsontext.Kind) string {
	switch kind {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
