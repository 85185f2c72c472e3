package audit

import (
	"encoding/json"
	"maps"
	"slices"
)

// Difference is one field in which a thing was changed.
type Difference struct {
	Field  string          `json:"field" doc:"Path of the field." example:"schedule.cron"`
	Before json.RawMessage `json:"before" doc:"Its value before. Null: it was absent."`
	After  json.RawMessage `json:"after" doc:"Its value after. Null: it is absent."`
}

// Differences lists the fields in which two JSON values differ, sorted. A list is one field.
func Differences(before, after json.RawMessage) []Difference {
	return differ(before, before, after, after)
}

// DefinitionDifferences lists the fields in which two definitions differ, as they are stored. A secret that was changed
// is listed, and reads *** before and after.
func DefinitionDifferences(before, after string) []Difference {
	mask := func(text string) json.RawMessage { return json.RawMessage(MaskDefinition(text)) }
	return differ(json.RawMessage(before), mask(before), json.RawMessage(after), mask(after))
}

// leaf is a field's value, and what is shown of it.
type leaf struct{ raw, shown json.RawMessage }

func differ(before, beforeShown, after, afterShown json.RawMessage) []Difference {
	was, is := map[string]leaf{}, map[string]leaf{}
	leaves(was, "", leaf{before, beforeShown})
	leaves(is, "", leaf{after, afterShown})
	all := maps.Clone(was)
	maps.Copy(all, is)
	found := []Difference{}
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if string(was[field].raw) != string(is[field].raw) {
			found = append(found, Difference{field, was[field].shown, is[field].shown})
		}
	}
	return found
}

// leaves writes every value of a JSON document under its path, such as schedule.cron. What is masked is one value.
func leaves(into map[string]leaf, path string, v leaf) {
	if len(v.shown) == 0 || string(v.shown) == "null" {
		return
	}
	var shown, raw map[string]json.RawMessage
	if json.Unmarshal(v.shown, &shown) != nil {
		into[path] = v
		return
	}
	_ = json.Unmarshal(v.raw, &raw) // an object, as what is shown of it is one
	for name, member := range shown {
		at := name
		if path != "" {
			at = path + "." + name
		}
		leaves(into, at, leaf{raw[name], member})
	}
}
