package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"punctual/scheduler"
)

// maxItems bounds the lists and maps of a body, so that nothing after decode has to judge a million entries.
const maxItems = 1000

// decode reads a well-formed JSON object into a struct. It returns everything that does not fit: unknown and repeated
// fields, wrong types, and empty values where only absence has a meaning. Null is absence. It does not stop at the
// first error. A field of the wrong type holds a placeholder afterwards, so the checks of other fields take it as
// present.
//
// A merge patch is read with patch set: there, null also removes the entries of maps.
func decode(data []byte, into any, patch bool) []FieldError {
	d := decoder{patch: patch}
	_, d.replaces = into.(*JobReplacement)
	d.value(bytes.TrimSpace(data), reflect.ValueOf(into).Elem(), "body", false)
	return d.errors
}

type decoder struct {
	patch    bool
	replaces bool // the mask of a secret keeps the stored one
	stored   bool // secrets may be ids, as in stored definitions
	errors   []FieldError
}

// decodeStored is decode for JSON that was made from a stored definition.
func decodeStored(data []byte, into any) []FieldError {
	d := decoder{stored: true}
	d.value(bytes.TrimSpace(data), reflect.ValueOf(into).Elem(), "body", false)
	return d.errors
}

func (d *decoder) add(at, format string, args ...any) {
	d.errors = append(d.errors, FieldError{at, fmt.Sprintf(format, args...)})
}

func (d *decoder) mismatch(at, want string, value []byte) {
	d.add(at, "must be %s, not %s", want, kindOf(value))
}

const placeholder = "?" // not a valid value of any field

var (
	rawMessage = reflect.TypeFor[json.RawMessage]()
	hiddenType = reflect.TypeFor[scheduler.Hidden]()

	scheduleType = reflect.TypeFor[scheduler.Schedule]()
)

// value reads one value. With absent set, "" and 0 mean absence, and writing them is an error.
func (d *decoder) value(raw []byte, v reflect.Value, at string, absent bool) {
	if v.Type() == rawMessage {
		if !storable(raw) {
			d.add(at, `must not hold the character \u0000 or half of a surrogate pair: the database cannot store them`)
		}
		v.SetBytes(append([]byte(nil), raw...))
		return
	}
	if secret, ok := v.Addr().Interface().(*scheduler.Hidden); ok {
		d.hidden(raw, secret, at)
		return
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(raw, text, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(raw, v.Elem(), at, false)
	case reflect.Struct:
		d.object(raw, v, at)
	case reflect.Map:
		d.stringMap(raw, v, at)
	case reflect.Slice:
		d.list(raw, v, at)
	default:
		d.scalar(raw, v, at, absent)
	}
}

// text reads a Duration or an Instant. They keep a text that they cannot read, and Definition.Validate reports it.
func (d *decoder) text(raw []byte, into encoding.TextUnmarshaler, at string) {
	text := placeholder
	switch kindOf(raw) {
	case "a string":
		text = unquote(raw)
	case "a number":
		d.add(at, "must be a string%s, not the number %s", suchAs(into, string(raw)), clip(string(raw)))
	default:
		d.mismatch(at, "a string", raw)
	}
	_ = into.UnmarshalText([]byte(text)) // by contract never fails
}

// suchAs suggests the string to write in place of a number, for a Duration or an Instant.
func suchAs(into encoding.TextUnmarshaler, number string) string {
	switch into.(type) {
	case *scheduler.Duration:
		if n, err := strconv.ParseInt(number, 10, 32); err == nil && n >= 0 {
			return fmt.Sprintf(" such as %q", number+"s")
		}
		return ` such as "90s"`
	case *scheduler.Instant:
		if at, ok := scheduler.InstantMeant(number); ok {
			return fmt.Sprintf(" such as %q", at)
		}
		return ` such as "2026-12-01T09:00:00Z"`
	}
	return ""
}

// hidden reads a secret. Its errors do not repeat the value.
func (d *decoder) hidden(raw []byte, into *scheduler.Hidden, at string) {
	*into = scheduler.HiddenOf(placeholder)
	switch {
	case raw[0] == '{' && d.stored:
		if err := json.Unmarshal(raw, into); err != nil {
			d.add(at, "%v", err)
		}
	case raw[0] != '"':
		d.mismatch(at, "a string", raw)
	case unquote(raw) == "":
		d.add(at, "must not be empty; leave it out")
	case d.replaces && unquote(raw) == scheduler.Mask:
		*into = scheduler.KeptSecret()
	default:
		*into = scheduler.HiddenOf(unquote(raw))
	}
}

func (d *decoder) scalar(raw []byte, v reflect.Value, at string, absent bool) {
	switch v.Kind() {
	case reflect.String:
		if raw[0] != '"' {
			d.mismatch(at, "a string", raw)
			v.SetString(placeholder)
			return
		}
		v.SetString(unquote(raw))
		if absent && v.IsZero() {
			d.add(at, "must not be empty; leave it out for the default")
			v.SetString(placeholder)
		}
		return
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			d.mismatch(at, "true or false", raw)
			return
		}
		v.SetBool(raw[0] == 't')
		return
	}
	if kindOf(raw) != "a number" {
		d.mismatch(at, "a number", raw)
		return
	}
	if v.CanInt() {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil {
			d.add(at, "must be a whole number, without exponent, of at most 9 digits")
			return
		}
		v.SetInt(n)
	} else {
		n, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			d.add(at, "is too large for a number")
			return
		}
		v.SetFloat(n)
	}
	if absent && v.IsZero() {
		d.add(at, "must not be 0%s; leave it out for the default", insteadOfZero[at[strings.LastIndexByte(at, '.')+1:]])
	}
}

// insteadOfZero suggests what to write in place of 0, by the name of the field.
var insteadOfZero = map[string]string{
	"max_attempts": ": write 1 for one attempt and no retry",
	"multiplier":   ": write 1 for equal delays between retries",
}

func (d *decoder) list(raw []byte, v reflect.Value, at string) {
	if raw[0] != '[' {
		d.mismatch(at, "a list", raw)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 4))
	i := 0
	for element := range elements(raw) {
		if i == maxItems {
			d.add(at, "has more than %d items", maxItems)
			return
		}
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.value(element, v.Index(i), fmt.Sprintf("%s[%d]", at, i), false)
		i++
	}
}

// stringMap reads a map of strings or of secrets.
func (d *decoder) stringMap(raw []byte, v reflect.Value, at string) {
	if raw[0] != '{' {
		d.mismatch(at, "an object", raw)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	n := 0
	for name, value := range members(raw) {
		if n++; n > maxItems {
			d.add(at, "has more than %d entries", maxItems)
			return
		}
		key, entry := reflect.ValueOf(name), at+"."+clip(name)
		switch {
		case v.MapIndex(key).IsValid():
			d.add(entry, "appears twice")
		case kindOf(value) == "null" && d.patch:
		case v.Type().Elem() == hiddenType:
			var secret scheduler.Hidden
			d.hidden(value, &secret, entry)
			v.SetMapIndex(key, reflect.ValueOf(secret))
		case value[0] != '"':
			d.mismatch(entry, "a string", value)
		default:
			v.SetMapIndex(key, reflect.ValueOf(unquote(value)))
		}
	}
}

func (d *decoder) object(raw []byte, v reflect.Value, at string) {
	if raw[0] != '{' {
		want := "an object"
		if v.Type() == scheduleType && raw[0] == '"' {
			if meant, ok := scheduler.ScheduleMeant(unquote(raw)); ok {
				want += " such as " + meant
			}
		}
		d.mismatch(at, want, raw)
		return
	}
	known := fieldsOf(v.Type())
	seen := make([]bool, len(known.list))
	unknown := 0
	for name, value := range members(raw) {
		i, ok := known.byName[name]
		switch {
		case !ok && known.ignores(name):
		case !ok:
			if unknown++; unknown <= mostFieldErrors {
				d.add(at+"."+clip(name), "unknown field%s", known.hint(name))
			}
		case seen[i]:
			d.add(at+"."+name, "appears twice")
		case kindOf(value) == "null":
			seen[i] = true
		default:
			seen[i] = true
			f := known.list[i]
			d.value(value, v.FieldByIndex(f.index), at+"."+name, f.absent)
		}
	}
}

// merged returns the errors of reading and those of the domain as one list, with one entry per field. For a field
// that could not be read the domain judged the placeholder, so its errors are left out.
func merged(read []FieldError, domain ...FieldError) []FieldError {
	var all []FieldError
	at := map[string]int{}
	for i, e := range append(read[:len(read):len(read)], domain...) {
		if i >= len(read) && covered(read, e.Location) {
			continue
		}
		if known, ok := at[e.Location]; ok {
			if !strings.Contains(all[known].Message, e.Message) {
				all[known].Message += "; " + e.Message
			}
			continue
		}
		at[e.Location] = len(all)
		all = append(all, e)
	}
	return all
}

// covered reports whether a location is in the list, or lies within a location of the list.
func covered(list []FieldError, location string) bool {
	for _, e := range list {
		if rest, ok := strings.CutPrefix(location, e.Location); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// within returns the domain's problems as errors at a location of the body.
func within(at string, problems []scheduler.Problem) []FieldError {
	fields := make([]FieldError, len(problems))
	for i, p := range problems {
		fields[i] = FieldError{at + "." + p.Field, p.Message}
	}
	return fields
}

// clip shortens submitted text for an error message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
