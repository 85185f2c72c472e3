package httpapi

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"punctual/httpapi/api"
	"punctual/httpapi/auth"
	"punctual/httpapi/body"
)

// servedFrom stands in the rendered page for its base URL, which is known only when a request comes.
const servedFrom = "http://served.from.invalid"

// curlOf returns a command that calls an operation with the examples of its description. Secrets are shell variables.
func curlOf(op *api.Operation, noAuth bool) (string, error) {
	target, err := exampleURL(op.Doc)
	if err != nil {
		return "", err
	}
	words := []string{"curl"}
	if op.Doc.Method != http.MethodGet {
		words[0] += " -X " + op.Doc.Method
	}
	words[0] += " " + shellWord(servedFrom+target)
	if op.Role == auth.RoleNone {
		words = append(words, `-H "Punctual-Run-Token: $PUNCTUAL_RUN_TOKEN"`)
	} else if !noAuth {
		words = append(words, `-H "Authorization: Bearer $PUNCTUAL_API_KEY"`)
	}
	if op.Doc.RequestBody != nil {
		media := body.MediaTypes(op.Doc)[0]
		words = append(words, "-H "+shellWord("Content-Type: "+media),
			"-d "+shellWord(pretty(op.Doc.RequestBody.Content[media].Example)))
	}
	return strings.Join(words, " \\\n  "), nil
}

// exampleURL returns the path of an operation with the examples of its required parameters.
func exampleURL(op *huma.Operation) (string, error) {
	path, query := op.Path, url.Values{}
	for _, p := range op.Parameters {
		if !p.Required || p.In == "header" {
			continue
		}
		if p.Schema == nil || len(p.Schema.Examples) == 0 {
			return "", fmt.Errorf("%s: the parameter %s has no example", op.OperationID, p.Name)
		}
		example := fmt.Sprint(p.Schema.Examples[0])
		if p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(example))
		} else {
			query.Set(p.Name, example)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, nil
}

// shellWord quotes a text as one word of a shell.
func shellWord(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// hostForm matches Host headers that may be copied into commands.
var hostForm = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?$|^\[[0-9A-Fa-f:.]+\](:[0-9]+)?$`)

// baseURL returns the URL that a request was sent to, as far as it tells. A proxy that ends TLS says so in
// X-Forwarded-Proto.
func baseURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	if !hostForm.MatchString(r.Host) {
		return "http://127.0.0.1:8080"
	}
	return scheme + "://" + html.EscapeString(r.Host)
}

// rolesMay says what each role may do beyond the role before it.
var rolesMay = map[auth.Role]string{
	auth.RoleMetrics:   "reads /metrics, and nothing else",
	auth.RoleViewer:    "reads jobs, runs, dead letters, queues and forecasts",
	auth.RoleSubmitter: "creates one-shots and triggers jobs",
	auth.RoleEditor:    "creates, changes and deletes jobs; cancels runs; replays dead letters",
	auth.RoleAdmin:     "administers the keys and secrets of its tenant, and reads the audit log",
	auth.RoleOperator:  "administers all tenants, and acts for any of them with the header Punctual-Tenant",
}
