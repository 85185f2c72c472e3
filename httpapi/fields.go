package httpapi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"punctual/scheduler/domain"
)

// fields are the JSON fields of a struct, including those of embedded structs.
type fields struct {
	list   []field
	byName map[string]int
	nested map[string]string // name of a field in a nested struct: its path
	owner  reflect.Type
}

type field struct {
	name    string
	index   []int
	absent  bool // "" and 0 mean absence
	omitted bool // left out of answers when empty
}

// mayBeEmpty are texts for people: an empty one is the same as an absent one.
var mayBeEmpty = []string{"description", "note"}

var knownFields sync.Map // reflect.Type: *fields

func fieldsOf(t reflect.Type) *fields {
	if known, ok := knownFields.Load(t); ok {
		return known.(*fields)
	}
	f := &fields{byName: map[string]int{}, nested: map[string]string{}, owner: t}
	for _, sf := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if sf.Anonymous || name == "" || name == "-" {
			continue
		}
		f.byName[name] = len(f.list)
		f.list = append(f.list, field{
			name: name, index: sf.Index,
			absent:  strings.Contains(options, "omitempty") && !slices.Contains(mayBeEmpty, name),
			omitted: options != "",
		})
		if sf.Type.Kind() == reflect.Struct {
			for _, inner := range fieldsOf(sf.Type).list {
				if _, taken := f.nested[inner.name]; !taken {
					f.nested[inner.name] = name + "." + inner.name
				}
			}
		}
	}
	known, _ := knownFields.LoadOrStore(t, f)
	return known.(*fields)
}

// setByServer is implemented by bodies whose answers have fields that requests may not set.
type setByServer interface{ readOnly() []string }

// ignores reports whether a field may be sent although the server sets it: a PUT takes back what a GET returned.
func (f *fields) ignores(name string) bool {
	if f.owner != reflect.TypeFor[JobReplacement]() {
		return false
	}
	return slices.Contains(JobReplacement{}.readOnly(), name)
}

// hint suggests what an unknown name may have meant; empty when nothing is near.
func (f *fields) hint(name string) string {
	if body, ok := reflect.Zero(f.owner).Interface().(setByServer); ok && slices.Contains(body.readOnly(), name) {
		if name == "state" {
			return `: it is set by the server; to pause a job write "paused": true, or POST /v1/jobs/{job}/pause`
		}
		return ": it is set by the server; leave it out"
	}
	if path, ok := f.nested[name]; ok {
		return fmt.Sprintf("; did you mean %s?", path)
	}
	names := make([]string, len(f.list))
	for i, known := range f.list {
		names[i] = known.name
	}
	return domain.DidYouMean(name, names...)
}
