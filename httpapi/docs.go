package httpapi

import (
	"bytes"
	_ "embed" // the page's template and style
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
	"punctual/httpapi/problem"
)

var (
	//go:embed docs.html
	docsPage string
	//go:embed docs.css
	docsStyle []byte
)

// docsPolicy fits the page: it has no script, and its only style is its own.
const docsPolicy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// documentRoutes adds the OpenAPI documents and the page made of them. Each is rendered once, when it is first asked
// for, so the start of a replica does not wait for them.
func (s *server) documentRoutes(mux chi.Router) {
	described := sync.OnceValue(func() *huma.OpenAPI { // examples are for documents only
		showExamples(s.api.OpenAPI().Components.Schemas, s.api.Operations)
		return s.api.OpenAPI()
	})
	mux.Get("/openapi.json",
		s.onDemand("application/json", func() ([]byte, error) { return indented(json.Marshal(described())) }))
	mux.Get("/openapi-3.0.json",
		s.onDemand("application/json", func() ([]byte, error) { return indented(described().Downgrade()) }))
	mux.Get("/docs", s.onDemand("text/html; charset=utf-8",
		func() ([]byte, error) { return renderDocs(described(), s.api.Operations, s.NoAuth) }))
	mux.Get("/docs.css", static("text/css; charset=utf-8", docsStyle))
}

// onDemand serves what render returns, and calls render once. Tests render every document, so no user meets an error.
func (s *server) onDemand(media string, render func() ([]byte, error)) http.HandlerFunc {
	content := sync.OnceValues(render)
	return func(w http.ResponseWriter, r *http.Request) {
		page, err := content()
		if err != nil {
			s.Log.ErrorContext(r.Context(), "a document cannot be rendered", "path", r.URL.Path, "error", err)
			http.Error(w, "the document cannot be rendered; the log says why", http.StatusInternalServerError)
			return
		}
		static(media, page)(w, r)
	}
}

// static serves a document. In the page, the commands get the URL of the server that it was loaded from.
func static(media string, content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h, shown := w.Header(), content
		h.Set("Content-Type", media)
		h.Set("Cache-Control", "no-cache")
		if strings.HasPrefix(media, "text/html") {
			h.Set("Content-Security-Policy", docsPolicy)
			shown = bytes.ReplaceAll(content, []byte(servedFrom), []byte(baseURL(r)))
		}
		_, _ = w.Write(shown) // the client may be gone
	}
}

// The model of the page.
type (
	docsModel struct {
		Info    *huma.Info
		NoAuth  bool
		Base    string
		Roles   []auth.Role
		May     map[auth.Role]string
		First   map[string]string // curl commands of a first job, by operation
		Groups  []docsGroup
		Schemas []docsSchema
		Codes   []problem.Code
		Meaning map[problem.Code]problem.Meaning
		Problem string // an example
	}
	docsGroup struct {
		Name, Description string
		Operations        []docsOperation
	}
	docsOperation struct {
		*huma.Operation
		Body      *docsBody
		Curl      string
		Responses []docsResponse // of success
		Errors    []problem.Code
	}
	docsBody struct {
		Media    string
		Required bool
		Type     docsType
	}
	docsResponse struct {
		Status, Description string
		Type                docsType
		Example, ShownBy    string // ShownBy: the operation that has the same example
		Headers             []string
	}
	docsSchema struct {
		Name   string
		Base   string // the schema that has the other fields; empty: there is none
		Fields []docsField
	}
	docsField struct {
		Name, Description, Default, Choices string
		Required                            bool
		Type                                docsType
	}
	docsType struct{ Before, Ref string } // such as "list of " and "Job"
)

// renderDocs renders the page, with the operations of each group in their order.
func renderDocs(described *huma.OpenAPI, operations []*api.Operation, noAuth bool) ([]byte, error) {
	model := docsModel{
		Info: described.Info, NoAuth: noAuth, Base: servedFrom, Roles: auth.Roles, May: rolesMay, First: map[string]string{},
		Codes: sortedCodes(), Meaning: problem.Codes,
		Problem: pretty(problemExamples["422"].Of(exampleRequestID)),
	}
	shownBy := map[string]string{}
	for _, tag := range described.Tags {
		group := docsGroup{Name: tag.Name, Description: tag.Description}
		for _, op := range operations {
			if op.Tag != tag.Name {
				continue
			}
			curl, err := curlOf(op, noAuth)
			if err != nil {
				return nil, err
			}
			model.First[op.ID] = curl
			group.Operations = append(group.Operations,
				docsOperation{op.Doc, docsBodyOf(op.Doc), curl, docsResponsesOf(op.Doc, shownBy), docsErrorsOf(op)})
		}
		model.Groups = append(model.Groups, group)
	}
	model.Schemas = docsSchemasOf(described.Components.Schemas.Map())
	page, err := template.New("docs").
		Funcs(template.FuncMap{"type": docsTypeOf, "lower": strings.ToLower, "slug": slug}).
		Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, model); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// slug returns a name in the form for links.
func slug(name string) string { return strings.ReplaceAll(name, " ", "-") }

func docsBodyOf(op *huma.Operation) *docsBody {
	if op.RequestBody == nil {
		return nil
	}
	media := body.MediaTypes(op)
	content := op.RequestBody.Content[media[0]]
	return &docsBody{strings.Join(media, " or "), op.RequestBody.Required, docsTypeOf(content.Schema)}
}

// docsResponsesOf returns the answers of success. An example that an earlier operation shows is not repeated.
func docsResponsesOf(op *huma.Operation, shownBy map[string]string) []docsResponse {
	var list []docsResponse
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status[0] >= '4' {
			continue
		}
		response := op.Responses[status]
		shown := docsResponse{
			Status: status, Description: response.Description, Headers: slices.Sorted(maps.Keys(response.Headers)),
		}
		for _, content := range response.Content {
			shown.Type, shown.Example = docsTypeOf(content.Schema), pretty(content.Example)
		}
		if by := shownBy[shown.Example]; by != "" {
			shown.Example, shown.ShownBy = "", by
		} else if shown.Example != "" {
			shownBy[shown.Example] = op.OperationID
		}
		list = append(list, shown)
	}
	return list
}

// docsErrorsOf returns the codes of the problems that an operation answers with.
func docsErrorsOf(op *api.Operation) (codes []problem.Code) {
	for _, status := range slices.Sorted(maps.Keys(op.Doc.Responses)) {
		if status[0] >= '4' {
			codes = append(codes, codesOf(op, status)...)
		}
	}
	return codes
}

// docsSchemasOf returns the schemas by name. One that has all fields of another names that one in their place.
func docsSchemasOf(schemas map[string]*huma.Schema) (list []docsSchema) {
	names := slices.Sorted(maps.Keys(schemas))
	fields := map[string][]docsField{}
	for _, name := range names {
		fields[name] = docsFieldsOf(schemas[name])
	}
	for _, name := range names {
		shown := docsSchema{Name: name, Fields: fields[name]}
		for _, base := range names {
			if has := fields[base]; len(has) < len(fields[name]) && len(has) > len(fields[shown.Base]) &&
				!slices.ContainsFunc(has, func(f docsField) bool { return !hasField(fields[name], f) }) {
				shown.Base = base
			}
		}
		if shown.Base != "" {
			shown.Fields = slices.DeleteFunc(slices.Clone(shown.Fields), func(f docsField) bool {
				return hasField(fields[shown.Base], f)
			})
		}
		list = append(list, shown)
	}
	return list
}

func hasField(list []docsField, f docsField) bool {
	return slices.ContainsFunc(list, func(g docsField) bool {
		return g.Name == f.Name && g.Description == f.Description && g.Type == f.Type
	})
}

func docsFieldsOf(schema *huma.Schema) []docsField {
	var required, optional []docsField
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p := schema.Properties[name]
		meaning, byDefault, _ := strings.Cut(p.Description, "Absent: ")
		f := docsField{
			Name: name, Description: meaning, Default: strings.TrimSuffix(byDefault, "."),
			Required: slices.Contains(schema.Required, name), Type: docsTypeOf(p),
			Choices: strings.Join(api.Texts(p.Enum), ", "),
		}
		if f.Required {
			required = append(required, f)
		} else {
			optional = append(optional, f)
		}
	}
	return append(required, optional...)
}

// docsTypeOf names the type of a schema.
func docsTypeOf(schema *huma.Schema) docsType {
	switch {
	case schema == nil:
		return docsType{}
	case schema.Ref != "":
		return docsType{Ref: schema.Ref[strings.LastIndexByte(schema.Ref, '/')+1:]}
	case schema.Type == huma.TypeArray:
		items := docsTypeOf(schema.Items)
		return docsType{"list of " + items.Before, items.Ref}
	case schema.Type == "":
		return docsType{Before: "any JSON"}
	}
	text := schema.Type
	if of, ok := schema.AdditionalProperties.(*huma.Schema); ok {
		text = "map of " + of.Type
	}
	if schema.Format != "" && schema.Type == huma.TypeString {
		text += " (" + schema.Format + ")"
	}
	if schema.Nullable {
		text += " or null"
	}
	return docsType{Before: text}
}

func pretty(v any) string {
	if v == nil {
		return ""
	}
	compact, err := body.Render(v)
	if err != nil {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, compact, "", "  ") != nil {
		return string(compact)
	}
	return b.String()
}
