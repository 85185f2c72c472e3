package httpapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

// maxItems bounds the lists and maps of a body, so that nothing after decode has to judge a million entries.
const maxItems = 1000

// decode reads a well-formed JSON object into a struct. It returns everything that does not fit: unknown and repeated
// fields, wrong types, and empty values where only absence has a meaning. Null is absence. It does not stop at the
// first error. A field of the wrong type holds a placeholder afterwards, so the checks of other fields take it as
// present.
//
// A merge patch is read with patch set: there, null also removes the entries of maps.
func decode(data []byte, into any, patch bool) []problem.FieldError {
	d := decoder{in: read(data), patch: patch}
	_, d.replaces = into.(*JobReplacement)
	d.value(reflect.ValueOf(into).Elem(), "body", false)
	return d.errors
}

type decoder struct {
	in       *jsontext.Decoder
	patch    bool
	replaces bool // the mask of a secret keeps the stored one
	stored   bool // secrets may be ids, as in stored definitions
	errors   []problem.FieldError
}

// decodeStored is decode for JSON that was made from a stored definition.
func decodeStored(data []byte, into any) []problem.FieldError {
	d := decoder{in: read(data), stored: true}
	d.value(reflect.ValueOf(into).Elem(), "body", false)
	return d.errors
}

func (d *decoder) add(at, format string, args ...any) {
	d.errors = append(d.errors, problem.Atf(at, format, args...))
}

// mismatch passes over a value of the wrong kind.
func (d *decoder) mismatch(at, want string) {
	d.add(at, "must be %s, not %s", want, kindOf(d.in.PeekKind()))
	d.skip()
}

// skip passes over a value.
func (d *decoder) skip() { _ = d.in.SkipValue() }

// raw reads a value as it stands.
func (d *decoder) raw() string {
	value, _ := d.in.ReadValue()
	return string(value)
}

// token reads a token. Of a string that is its text, in which a lone surrogate becomes U+FFFD.
func (d *decoder) token() string {
	token, _ := d.in.ReadToken()
	return token.String()
}

// more reports whether the object or array that was begun has more in it. If not, it reads the closing bracket.
func (d *decoder) more() bool {
	switch d.in.PeekKind() {
	case '}', ']':
		_ = d.token()
		return false
	case jsontext.KindInvalid:
		return false
	}
	return true
}

// leave passes over what is left of the object or array that was begun.
func (d *decoder) leave() {
	for d.more() {
		d.skip()
	}
}

const placeholder = "?" // not a valid value of any field

var (
	rawMessage = reflect.TypeFor[json.RawMessage]()
	hiddenType = reflect.TypeFor[domain.Hidden]()

	scheduleType = reflect.TypeFor[domain.Schedule]()
)

// value reads one value. With absent set, "" and 0 mean absence, and writing them is an error.
func (d *decoder) value(v reflect.Value, at string, absent bool) {
	if v.Type() == rawMessage {
		raw := []byte(d.raw())
		if !domain.StorableJSON(raw) {
			d.add(at, `must not hold the character \u0000 or half of a surrogate pair: the database cannot store them`)
		}
		v.SetBytes(raw)
		return
	}
	if secret, ok := v.Addr().Interface().(*domain.Hidden); ok {
		d.hidden(secret, at)
		return
	}
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		d.text(text, at)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem(), at, false)
	case reflect.Struct:
		d.object(v, at)
	case reflect.Map:
		d.stringMap(v, at)
	case reflect.Slice:
		d.list(v, at)
	default:
		d.scalar(v, at, absent)
	}
}

// text reads a Duration or an Instant. They keep a text that they cannot read, and Definition.Validate reports it.
func (d *decoder) text(into encoding.TextUnmarshaler, at string) {
	text := placeholder
	switch d.in.PeekKind() {
	case '"':
		text = d.token()
	case '0':
		number := d.raw()
		d.add(at, "must be a string%s, not the number %s", suchAs(into, number), problem.Clip(number))
	default:
		d.mismatch(at, "a string")
	}
	_ = into.UnmarshalText([]byte(text)) // by contract never fails
}

// suchAs suggests the string to write in place of a number, for a Duration or an Instant.
func suchAs(into encoding.TextUnmarshaler, number string) string {
	switch into.(type) {
	case *domain.Duration:
		if n, err := strconv.ParseInt(number, 10, 32); err == nil && n >= 0 {
			return fmt.Sprintf(" such as %q", number+"s")
		}
		return ` such as "90s"`
	case *domain.Instant:
		if at, ok := domain.InstantMeant(number); ok {
			return fmt.Sprintf(" such as %q", at)
		}
		return ` such as "2026-12-01T09:00:00Z"`
	}
	return ""
}

// hidden reads a secret. Its errors do not repeat the value.
func (d *decoder) hidden(into *domain.Hidden, at string) {
	*into = domain.HiddenOf(placeholder)
	switch kind := d.in.PeekKind(); {
	case kind == '{' && d.stored:
		if err := json.Unmarshal([]byte(d.raw()), into); err != nil {
			d.add(at, "%v", err)
		}
		return
	case kind != '"':
		d.mismatch(at, "a string")
		return
	}
	switch text := d.token(); {
	case text == "":
		d.add(at, "must not be empty; leave it out")
	case d.replaces && text == domain.Mask:
		*into = domain.KeptSecret()
	default:
		*into = domain.HiddenOf(text)
	}
}

func (d *decoder) scalar(v reflect.Value, at string, absent bool) {
	kind := d.in.PeekKind()
	switch v.Kind() {
	case reflect.String:
		if kind != '"' {
			d.mismatch(at, "a string")
			v.SetString(placeholder)
			return
		}
		v.SetString(d.token())
		if absent && v.IsZero() {
			d.add(at, "must not be empty; leave it out for the default")
			v.SetString(placeholder)
		}
		return
	case reflect.Bool:
		if kind != 't' && kind != 'f' {
			d.mismatch(at, "true or false")
			return
		}
		v.SetBool(d.token() == "true")
		return
	}
	if kind != '0' {
		d.mismatch(at, "a number")
		return
	}
	number := d.raw()
	if v.CanInt() {
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			d.add(at, "must be a whole number, without exponent, of at most 9 digits")
			return
		}
		v.SetInt(n)
	} else {
		n, err := strconv.ParseFloat(number, 64)
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

func (d *decoder) list(v reflect.Value, at string) {
	if d.in.PeekKind() != '[' {
		d.mismatch(at, "a list")
		return
	}
	_ = d.token()
	v.Set(reflect.MakeSlice(v.Type(), 0, 4))
	for i := 0; d.more(); i++ {
		if i == maxItems {
			d.add(at, "has more than %d items", maxItems)
			d.leave()
			return
		}
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.value(v.Index(i), fmt.Sprintf("%s[%d]", at, i), false)
	}
}

// stringMap reads a map of strings or of secrets.
func (d *decoder) stringMap(v reflect.Value, at string) {
	if d.in.PeekKind() != '{' {
		d.mismatch(at, "an object")
		return
	}
	_ = d.token()
	v.Set(reflect.MakeMap(v.Type()))
	for n := 0; d.more(); n++ {
		if n == maxItems {
			d.add(at, "has more than %d entries", maxItems)
			d.leave()
			return
		}
		name := d.token()
		key, entry := reflect.ValueOf(name), at+"."+problem.Clip(name)
		switch kind := d.in.PeekKind(); {
		case v.MapIndex(key).IsValid():
			d.add(entry, "appears twice")
			d.skip()
		case kind == 'n' && d.patch:
			d.skip()
		case v.Type().Elem() == hiddenType:
			var secret domain.Hidden
			d.hidden(&secret, entry)
			v.SetMapIndex(key, reflect.ValueOf(secret))
		case kind != '"':
			d.mismatch(entry, "a string")
		default:
			v.SetMapIndex(key, reflect.ValueOf(d.token()))
		}
	}
}

func (d *decoder) object(v reflect.Value, at string) {
	switch kind := d.in.PeekKind(); {
	case kind == '{':
	case kind == '"' && v.Type() == scheduleType:
		want := "an object"
		if meant, ok := domain.ScheduleMeant(d.token()); ok {
			want += " such as " + meant
		}
		d.add(at, "must be %s, not a string", want)
		return
	default:
		d.mismatch(at, "an object")
		return
	}
	_ = d.token()
	known := fieldsOf(v.Type())
	seen := make([]bool, len(known.list))
	unknown := 0
	for d.more() {
		name := d.token()
		i, ok := known.byName[name]
		switch {
		case !ok:
			if unknown++; !known.ignores(name) && unknown <= problem.MostErrors {
				d.add(at+"."+problem.Clip(name), "unknown field%s", known.hint(name))
			}
			d.skip()
		case seen[i]:
			d.add(at+"."+name, "appears twice")
			d.skip()
		case d.in.PeekKind() == 'n':
			seen[i] = true
			d.skip()
		default:
			seen[i] = true
			f := known.list[i]
			d.value(v.FieldByIndex(f.index), at+"."+name, f.absent)
		}
	}
}

// merged returns the errors of reading and those of the domain as one list, with one entry per field. For a field
// that could not be read the domain judged the placeholder, so its errors are left out.
func merged(read []problem.FieldError, domain ...problem.FieldError) []problem.FieldError {
	var all []problem.FieldError
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
func covered(list []problem.FieldError, location string) bool {
	for _, e := range list {
		if rest, ok := strings.CutPrefix(location, e.Location); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// within returns the domain's problems as errors at a location of the body.
func within(at string, problems []domain.Problem) []problem.FieldError {
	fields := make([]problem.FieldError, len(problems))
	for i, p := range problems {
		fields[i] = problem.At(at+"."+p.Field, p.Message)
	}
	return fields
}
