package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/scheduler/jobspec"
)

// describeDefaults gives the optional fields of bodies the defaults that the code fills in. Where a default depends on
// other fields, the field's description says so, after "Absent:".
func describeDefaults(schemas map[string]*huma.Schema, operations []*api.Operation) {
	for _, body := range []string{"JobInput", "JobReplacement"} {
		setDefaults(schemas, schemas[body], asJSON(jobspec.Definition{}.WithDefaults()))
	}
	setDefaults(schemas, schemas["Notify"], asJSON(jobspec.Notify{Format: jobspec.Notify{}.Recipient().Format}))
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
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		panic(fmt.Sprintf("%T has no JSON: %v", v, err)) // tests render every document
	}
	return fields
}
