package httpapi

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/problem"
	"punctual/scheduler/domain"
)

// parameterMessage says what is wrong with a query parameter. For one with an enum it lists the words and suggests
// the nearest; for an unknown one it lists the parameters there are. All else is huma's own message.
func parameterMessage(op *huma.Operation, detail *huma.ErrorDetail) string {
	in, name, ok := strings.Cut(detail.Location, ".")
	if op == nil || !ok || in != "query" {
		return detail.Message
	}
	var names []string
	for _, p := range op.Parameters {
		switch {
		case p.In != in:
		case p.Name != name:
			names = append(names, p.Name)
		case len(p.Schema.Enum) > 0:
			return notOneOf(detail.Value, p.Schema.Enum)
		default:
			return detail.Message
		}
	}
	if len(names) == 0 {
		return "unknown parameter; this operation takes no query parameters"
	}
	return fmt.Sprintf("unknown parameter; there are: %s%s", strings.Join(names, ", "),
		domain.DidYouMean(name, names...))
}

// notOneOf says which words are allowed, and suggests the nearest.
func notOneOf(value any, choices []any) string {
	words := texts(choices)
	written, _ := value.(string)
	return fmt.Sprintf("%q is not one of %s%s", problem.Clip(written), strings.Join(words, ", "),
		domain.DidYouMean(written, words...))
}

// texts returns the choices of an enum as they are shown.
func texts(choices []any) []string {
	words := make([]string, len(choices))
	for i, choice := range choices {
		words[i] = fmt.Sprint(choice)
	}
	return words
}
