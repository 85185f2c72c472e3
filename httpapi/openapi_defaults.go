package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/body"
	"punctual/scheduler/jobspec"
)

// describeDefaults says what optional fields of bodies are by default, which is what the code fills in: in words, after
// "Absent:", as where a default depends on other fields. Generators of clients demand a field whose schema has a
// default.
func describeDefaults(schemas map[string]*huma.Schema, operations []*api.Operation) {
	for _, body := range []string{"JobInput", "JobReplacement"} {
		setDefaults(schemas, schemas[body], asJSON(jobspec.Definition{}.WithDefaults()))
	}
	setDefaults(schemas, schemas["Notify"], asJSON(jobspec.Notify{Format: jobspec.Notify{}.Recipient().Format}))
	describeEffective(schemas)
	for _, op := range operations {
		if op.Doc.RequestBody == nil {
			continue
		}
		for _, content := range op.Doc.RequestBody.Content {
			for _, p := range schemas[refName(content.Schema)].Properties {
				if p.Type == huma.TypeBoolean && !saysDefault(p) {
					p.Default = false
				}
			}
		}
	}
	for _, schema := range schemas {
		for _, p := range schema.Properties {
			if p.Default != nil {
				p.Description += " Absent: " + defaultWords(p.Default) + "."
				p.Default = nil
			}
		}
	}
}

// defaultWords writes a default as text has it: a string as it is, all else as JSON.
func defaultWords(value any) string {
	value = reflect.Indirect(reflect.ValueOf(value)).Interface() // huma has a pointer for one of a *int
	if text, is := value.(string); is {
		return text
	}
	return string(jsonOf(value))
}

// describeEffective says what a job always shows, because the server fills it in.
func describeEffective(schemas map[string]*huma.Schema) {
	always := func(inner string) (names []string) {
		for i, d := range []jobspec.Definition{
			{}, {Steps: []jobspec.Step{{}}}, {Completion: jobspec.CompleteAsync}, {Limits: []string{"limit"}},
		} {
			shown := asJSON(d.WithDefaults())
			if inner != "" {
				shown = shown[inner].(map[string]any)
			}
			if i == 0 {
				names = slices.Sorted(maps.Keys(shown))
			}
			names = slices.DeleteFunc(names, func(name string) bool { _, is := shown[name]; return !is })
		}
		return names
	}
	for _, job := range []string{"Job", "ListedJob"} {
		for _, name := range always("") {
			if !slices.Contains(schemas[job].Required, name) {
				schemas[job].Required = append(slices.Clip(schemas[job].Required), name)
			}
		}
	}
	for field, name := range map[string]string{"retry": "Retry", "missed": "Missed"} {
		effective := copied(schemas[name])
		effective.Required = always(field)
		for _, p := range effective.Properties {
			p.Default = nil
		}
		schemas["Effective"+name] = effective
		for _, job := range []string{"Job", "ListedJob"} {
			of := *schemas[job].Properties[field]
			of.Ref = body.SchemaPrefix + "Effective" + name
			schemas[job].Properties[field] = &of
		}
	}
}

// setDefaults sets the defaults of a schema's optional fields, and of those in its fields.
func setDefaults(schemas map[string]*huma.Schema, of *huma.Schema, defaults map[string]any) {
	for name, value := range defaults {
		p := of.Properties[name]
		if inner, ok := value.(map[string]any); ok && p.Ref != "" {
			setDefaults(schemas, schemas[refName(p)], inner)
		} else if !slices.Contains(of.Required, name) && !saysDefault(p) {
			p.Default = value
		}
	}
}

// saysDefault reports whether a field says what its absence means.
func saysDefault(p *huma.Schema) bool {
	return p.Default != nil || strings.Contains(p.Description, "Absent")
}

func refName(schema *huma.Schema) string {
	return schema.Ref[strings.LastIndexByte(schema.Ref, '/')+1:]
}

// asJSON returns a value of the API as the fields that its JSON has.
func asJSON(v any) (fields map[string]any) {
	if err := json.Unmarshal(jsonOf(v), &fields); err != nil {
		panic(fmt.Sprintf("%T is not an object: %v", v, err)) // tests render every document
	}
	return fields
}

func jsonOf(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON: %v", v, err)) // tests render every document
	}
	return raw
}
