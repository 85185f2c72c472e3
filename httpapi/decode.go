package httpapi

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

// maxItems bounds the lists and maps of a body, so that nothing after decode has to judge a million entries.
const maxItems = 1000

// mostFound bounds the errors that decode looks for, to more than a problem lists.
const mostFound = 10 * problem.MostErrors

// placeholder stands for a string that does not fit. It is not a valid value of any field.
const placeholder = "?"

// decode reads a well-formed JSON object into a struct. It returns what it read, and everything that does not fit the
// struct's schema: unknown and repeated fields, wrong types, and empty values where only absence has a meaning. Null is
// absence. It does not stop at the first error. What does not fit is not in what it read; but in place of a string
// there is a placeholder, so the checks of other fields take it as present.
//
// A merge patch is read with patch set: there, null also removes the entries of maps.
func decode(data []byte, into any, patch bool) (fit []byte, wrong []problem.FieldError) {
	body := reflect.TypeOf(into).Elem()
	var fits bytes.Buffer
	d := decoder{
		in: jsontext.NewDecoder(bytes.NewBuffer(data), lenient), out: jsontext.NewEncoder(&fits, lenient),
		schemas: schemasOf(body), patch: patch,
	}
	d.value(place{at: "body", schema: d.schemas.Schema(body, true, "")})
	if len(d.errors) > 0 {
		data = fits.Bytes()
	}
	if err := fill(into, data); err != nil {
		d.add("body", "does not fit its description")
	}
	return data, d.errors
}

// fill reads JSON that fits into a struct.
func fill(into any, data []byte) error { return json.Unmarshal(data, into, lenient, nullIsAbsence) }

// decoder reads objects and lists by the schema of the body, has huma judge the values in them, and writes what fits.
// huma does not get the body as a whole: in the form that huma reads, it could take 50 times its size in memory, and
// after a name with a dot huma says wrong locations.
type decoder struct {
	in      *jsontext.Decoder
	out     *jsontext.Encoder
	schemas huma.Registry
	patch   bool
	errors  []problem.FieldError
}

// place is a place in a body, and what belongs there.
type place struct {
	at       string
	schema   *huma.Schema
	of       reflect.Type // what the schema describes; nil: it has no name
	optional bool
}

// body returns an empty value of what the schema describes; nil if that has no name.
func (p place) body() any {
	if p.of == nil {
		return nil
	}
	return reflect.Zero(p.of).Interface()
}

var (
	// lenient lets JSON of any form be, as it is kept as it was written. decoder reports repeated fields itself.
	lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

	nullIsAbsence = json.WithUnmarshalers(json.UnmarshalFunc(func(raw []byte, into *stdjson.RawMessage) error {
		if string(raw) != "null" {
			*into = slices.Clone(raw)
		}
		return nil
	}))
)

var knownSchemas sync.Map // reflect.Type: huma.Registry

// schemasOf returns the schemas of a type and of what is in it. They are those of the API's description before describe
// completes them.
func schemasOf(t reflect.Type) huma.Registry {
	if known, ok := knownSchemas.Load(t); ok {
		return known.(huma.Registry)
	}
	made := newSchemas()
	made.Schema(t, true, "")
	known, _ := knownSchemas.LoadOrStore(t, made)
	return known.(huma.Registry)
}

// schemaOf returns the schema of a struct, without the others.
func schemaOf(t reflect.Type) *huma.Schema { return schemasOf(t).Schema(t, false, "") }

// resolved returns a place with its schema in place of a reference to it.
func (d *decoder) resolved(p place) place {
	for p.schema.Ref != "" {
		p.schema, p.of = d.schemas.SchemaFromRef(p.schema.Ref), d.schemas.TypeFromRef(p.schema.Ref)
	}
	return p
}

func (d *decoder) add(at, message string) { d.errors = append(d.errors, problem.At(at, message)) }

// token reads a token. Of a string that is its text, in which a lone surrogate becomes U+FFFD.
func (d *decoder) token() string {
	token, _ := d.in.ReadToken()
	return token.String()
}

// more reports whether the object or list that was begun has more to read, after n. If that is too much, or if there
// are too many errors, it passes over the rest. At the end it reads the closing bracket.
func (d *decoder) more(n int) bool {
	for {
		switch kind := d.in.PeekKind(); {
		case kind == '}' || kind == ']' || kind == jsontext.KindInvalid:
			_ = d.token()
			return false
		case n <= maxItems && len(d.errors) < mostFound:
			return true
		}
		_ = d.in.SkipValue()
	}
}

// value reads a value. It writes the value if it fits, and what may stand for it if not.
func (d *decoder) value(p place) {
	p = d.resolved(p)
	switch kind := d.in.PeekKind(); {
	case kind == '{' && p.schema.Type == huma.TypeObject:
		d.object(p)
		return
	case kind == '[' && p.schema.Type == huma.TypeArray:
		d.list(p)
		return
	}
	raw, _ := d.in.ReadValue()
	message := d.unfit(p, raw)
	switch {
	case message == "":
		_ = d.out.WriteValue(raw)
		return
	case p.schema.Type == huma.TypeString:
		d.write(jsontext.String(placeholder))
	default:
		d.write(jsontext.Null)
	}
	d.add(p.at, message)
}

// write writes a token. Writing to memory, in an order that is well-formed, never fails.
func (d *decoder) write(token jsontext.Token) { _ = d.out.WriteToken(token) }

func (d *decoder) list(p place) {
	d.write(jsontext.BeginArray)
	_ = d.token()
	for n := 0; d.more(n); n++ {
		if n == maxItems {
			d.add(p.at, fmt.Sprintf("has more than %d items", maxItems))
		}
		d.value(place{at: fmt.Sprintf("%s[%d]", p.at, n), schema: p.schema.Items})
	}
	d.write(jsontext.EndArray)
}

// object reads an object with the fields of its schema, or with entries of any name.
func (d *decoder) object(p place) {
	d.write(jsontext.BeginObject)
	seen := map[string]bool{}
	entries, anyName := p.schema.AdditionalProperties.(*huma.Schema)
	for _ = d.token(); d.more(len(seen)); {
		if len(seen) == maxItems {
			d.add(p.at, fmt.Sprintf("has more than %d entries", maxItems))
		}
		name := d.token()
		field := place{at: p.at + "." + problem.Clip(name), schema: entries}
		if !anyName {
			field.schema, field.optional = p.schema.Properties[name], !slices.Contains(p.schema.Required, name)
		}
		switch {
		case field.schema == nil:
			d.refuse(field.at, d.unknown(p, name))
			continue
		case seen[name]:
			d.refuse(field.at, "appears twice")
			continue
		}
		seen[name] = true
		d.write(jsontext.String(name))
		if d.in.PeekKind() == 'n' && (d.patch || !anyName) {
			d.write(jsontext.Null)
			_ = d.in.SkipValue()
			continue
		}
		d.value(field)
	}
	d.write(jsontext.EndObject)
}

// refuse passes over a value; an empty message: without an error.
func (d *decoder) refuse(at, message string) {
	if message != "" {
		d.add(at, message)
	}
	_ = d.in.SkipValue()
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
