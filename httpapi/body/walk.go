package body

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"punctual/httpapi/problem"
)

// maxItems bounds the lists and maps of a body, so that nothing after Read has to judge a million entries.
const maxItems = 1000

// mostFound bounds the errors that Read looks for, to more than a problem lists.
const mostFound = 10 * problem.MostErrors

// placeholder stands for a string that does not fit. It is not a valid value of any field.
const placeholder = `"?"`

// Read reads the text of a body. The problem is that of a text that is not JSON. Errors are everything that does not
// fit the schema of T: unknown and repeated fields, wrong types, and empty values where only absence has a meaning.
// Null is absence. Reading does not stop at the first error. What does not fit is not in Value; but in place of a
// string there is a placeholder, so the checks of other fields take it as present.
//
// A merge patch is read with patch set: there, null also removes the entries of maps.
func Read[T any](text []byte, patch bool) (b Body[T], unread *problem.Problem) {
	if problem := unreadable(text); problem != nil {
		return b, problem
	}
	w := walkOf[T](text, patch)
	if !w.whole() {
		return b, notJSON(text)
	}
	b.Raw = w.fit()
	if err := Fill(&b.Value, b.Raw); err != nil {
		w.add("body", "does not fit its description")
	}
	b.Errors = w.errors
	return b, nil
}

// Fill reads JSON that fits into a struct.
func Fill(into any, data []byte) error { return json.Unmarshal(data, into, lenient, nullIsAbsence) }

// walk reads objects and lists by the schema of the body, and has huma judge the values in them. huma does not get the
// body as a whole: in the form that huma reads, it could take 50 times its size in memory, and after a name with a dot
// huma says wrong locations.
type walk struct {
	text    []byte
	in      *jsontext.Decoder
	broken  bool   // the text is not JSON; then nothing more is read
	fits    []byte // what fits of the text up to taken; empty while all of it does
	taken   int64
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
	// lenient lets JSON of any form be, as it is kept as it was written. walk reports repeated fields itself.
	lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

	nullIsAbsence = json.WithUnmarshalers(json.UnmarshalFunc(func(raw []byte, into *stdjson.RawMessage) error {
		if string(raw) != "null" {
			*into = slices.Clone(raw)
		}
		return nil
	}))
)

// walkOf walks over the text of a T.
func walkOf[T any](text []byte, patch bool) *walk {
	body := reflect.TypeFor[T]()
	w := &walk{
		text: text, in: jsontext.NewDecoder(bytes.NewBuffer(text), lenient), schemas: schemasOf(body), patch: patch,
	}
	w.value(place{at: "body", schema: w.schemas.Schema(body, true, "")})
	return w
}

// whole reports whether the text was one JSON value.
func (w *walk) whole() bool {
	_, err := w.in.ReadToken()
	return !w.broken && errors.Is(err, io.EOF)
}

// fit returns the text without what does not fit.
func (w *walk) fit() []byte {
	if w.taken == 0 {
		return w.text
	}
	return append(w.fits, w.text[w.taken:]...)
}

// replace puts something in place of what was read since an offset.
func (w *walk) replace(since int64, by string) {
	w.fits = append(append(w.fits, w.text[w.taken:since]...), by...)
	w.taken = w.in.InputOffset()
}

var knownSchemas sync.Map // reflect.Type: huma.Registry

// schemasOf returns the schemas of a type and of what is in it.
func schemasOf(t reflect.Type) huma.Registry {
	if known, ok := knownSchemas.Load(t); ok {
		return known.(huma.Registry)
	}
	made := NewSchemas(huma.DefaultSchemaNamer)
	made.Schema(t, true, "")
	known, _ := knownSchemas.LoadOrStore(t, made)
	return known.(huma.Registry)
}

// Schema returns the schema of a struct, as its fields say.
func Schema(t reflect.Type) *huma.Schema { return schemasOf(t).Schema(t, false, "") }

// resolved returns a place with its schema in place of a reference to it.
func (w *walk) resolved(p place) place {
	for p.schema.Ref != "" {
		p.schema, p.of = w.schemas.SchemaFromRef(p.schema.Ref), w.schemas.TypeFromRef(p.schema.Ref)
	}
	return p
}

func (w *walk) add(at, message string) { w.errors = append(w.errors, problem.At(at, message)) }

// token reads a token. Of a string that is its text, in which a lone surrogate becomes U+FFFD.
func (w *walk) token() string {
	token, err := w.in.ReadToken()
	w.broken = w.broken || err != nil
	return token.String()
}

func (w *walk) skip() {
	if w.in.SkipValue() != nil {
		w.broken = true
	}
}

// more reports whether the object or list that was begun has more to read, after n. If that is too much, or if there
// are too many errors, it passes over the rest. At the end it reads the closing bracket.
func (w *walk) more(n int) bool {
	if kind := w.in.PeekKind(); kind != '}' && kind != ']' && !w.broken {
		if n <= maxItems && len(w.errors) < mostFound {
			return true
		}
		since := w.in.InputOffset()
		for kind != '}' && kind != ']' && !w.broken {
			w.skip()
			kind = w.in.PeekKind()
		}
		w.replace(since, "")
	}
	_ = w.token()
	return false
}

// value reads a value, and puts what may stand for it in its place if it does not fit.
func (w *walk) value(p place) {
	p = w.resolved(p)
	switch kind := w.in.PeekKind(); {
	case kind == '{' && p.schema.Type == huma.TypeObject:
		w.object(p)
		return
	case kind == '[' && p.schema.Type == huma.TypeArray:
		w.list(p)
		return
	}
	raw, err := w.in.ReadValue()
	if err != nil {
		w.broken = true
		return
	}
	message := w.unfit(p, raw)
	if message == "" {
		return
	}
	by := "null"
	if p.schema.Type == huma.TypeString {
		by = placeholder
	}
	w.replace(w.in.InputOffset()-int64(len(raw)), by)
	w.add(p.at, message)
}

func (w *walk) list(p place) {
	_ = w.token()
	for n := 0; w.more(n); n++ {
		if n == maxItems {
			w.add(p.at, fmt.Sprintf("has more than %d items", maxItems))
		}
		w.value(place{at: fmt.Sprintf("%s[%d]", p.at, n), schema: p.schema.Items})
	}
}

// object reads an object with the fields of its schema, or with entries of any name.
func (w *walk) object(p place) {
	seen := map[string]bool{}
	entries, anyName := p.schema.AdditionalProperties.(*huma.Schema)
	for _ = w.token(); w.more(len(seen)); {
		if len(seen) == maxItems {
			w.add(p.at, fmt.Sprintf("has more than %d entries", maxItems))
		}
		before := w.in.InputOffset()
		name := w.token()
		field := place{at: p.at + "." + problem.Clip(name), schema: entries}
		if !anyName {
			field.schema, field.optional = p.schema.Properties[name], !slices.Contains(p.schema.Required, name)
		}
		switch {
		case field.schema == nil: // it stays in the text: decoding ignores what it does not know
			if message := w.unknown(p, name); message != "" {
				w.add(field.at, message)
			}
			w.skip()
			continue
		case seen[name]:
			w.add(field.at, "appears twice")
			w.skip()
			w.replace(before, "")
			continue
		}
		seen[name] = true
		if w.in.PeekKind() == 'n' && (w.patch || !anyName) {
			w.skip()
			continue
		}
		w.value(field)
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
