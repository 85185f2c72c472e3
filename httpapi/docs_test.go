package httpapi

import (
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"punctual/httpapi/auth"
	"punctual/store"
)

// docsOf returns the page as a server serves it.
func docsOf(t *testing.T, c Config, change func(*http.Request)) string {
	t.Helper()
	c.Store, c.Registerer = new(store.Store), prometheus.NewRegistry()
	handler, err := NewHandler(c)
	must(t, err)
	r, w := httptest.NewRequest("GET", "/docs", nil), httptest.NewRecorder()
	change(r)
	handler.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatal(w.Code)
	}
	return w.Body.String()
}

var curlOfOperation = regexp.MustCompile(`(?s)<article id="([a-z-]+)">.*?<pre>(curl.*?)</pre>`)

// The page shows each operation once, in the order of use.
func TestThePageIsInTheOrderOfUse(t *testing.T) {
	t.Parallel()
	page := docsOf(t, Config{}, func(*http.Request) {})
	var shown []string
	for _, match := range curlOfOperation.FindAllStringSubmatch(page, -1) {
		shown = append(shown, match[1])
	}
	if want := []string{"create-job", "get-job", "list-jobs"}; !slices.Equal(shown[:3], want) {
		t.Errorf("the page begins with %v, want %v", shown[:3], want)
	}
	listed := slices.Sorted(maps.Keys(rolesOf(t)))
	slices.Sort(shown)
	if diff := cmp.Diff(listed, shown); diff != "" {
		t.Errorf("the description (-) and the page (+): %s", diff)
	}
	for _, link := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+link[1]+`"`) {
			t.Errorf("#%s leads nowhere", link[1])
		}
	}
	if address := regexp.MustCompile(`<code>0x[0-9a-f]{6,}`).FindString(page); address != "" {
		t.Errorf("%s is no default", address)
	}
	for _, want := range []string{"<td>30s<td>", `id="first-job"`, `All fields of <a href="#schema-JobInput">`} {
		if !strings.Contains(html.UnescapeString(page), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")
	if words := len(strings.Fields(text)); words > 39_800 {
		t.Errorf("%d words", words)
	}
}

// The commands of the page can be pasted into a shell: each calls its operation with the example's body.
func TestEveryOperationHasItsCurl(t *testing.T) {
	t.Parallel()
	operations := map[string]struct {
		method, path string
		body         any
	}{}
	for path, item := range static200(t, "/openapi.json").fields()["paths"].(map[string]any) {
		for method, v := range item.(map[string]any) {
			op := v.(map[string]any)
			var body any
			if request, ok := op["requestBody"].(map[string]any); ok {
				content := request["content"].(map[string]any)
				media := slices.Sorted(maps.Keys(content))[0]
				body = content[media].(map[string]any)["example"]
			}
			operations[op["operationId"].(string)] = struct {
				method, path string
				body         any
			}{strings.ToUpper(method), path, body}
		}
	}
	page := docsOf(t, Config{}, func(r *http.Request) { r.Host = "punctual.internal:8080" })
	shown := curlOfOperation.FindAllStringSubmatch(page, -1)
	if len(shown) != len(operations) {
		t.Errorf("%d commands for %d operations", len(shown), len(operations))
	}
	for _, match := range shown {
		id, command := match[1], html.UnescapeString(match[2])
		op, known := operations[id]
		words := shellWords(t, command)
		if !known || words[0] == "" {
			t.Errorf("%s: %s", id, command)
			continue
		}
		method, target, body := "GET", "", any(nil)
		var headers []string
		for i := 0; i < len(words); i++ {
			switch words[i] {
			case "-X":
				i++
				method = words[i]
			case "-H":
				i++
				headers = append(headers, words[i])
			case "-d":
				i++
				if err := json.Unmarshal([]byte(words[i]), &body); err != nil {
					t.Errorf("%s: %v: %s", id, err, words[i])
				}
			default:
				target = words[i]
			}
		}
		form := "^" + regexp.MustCompile(`\\\{\w+\\\}`).
			ReplaceAllString(regexp.QuoteMeta("http://punctual.internal:8080"+op.path), `[^/{}]+`) + `(\?.*)?$`
		if method != op.method || !regexp.MustCompile(form).MatchString(target) {
			t.Errorf("%s calls %s %s", id, method, target)
		}
		if diff := cmp.Diff(op.body, body); diff != "" {
			t.Errorf("%s sends another body: %s", id, diff)
		}
		want := "Authorization: Bearer the key"
		if rolesOf(t)[id] == auth.RoleNone {
			want = "Punctual-Run-Token: the token"
		}
		if !slices.Contains(headers, want) {
			t.Errorf("%s sends %q, want %q", id, headers, want)
		}
	}
}

// shellWords returns the arguments that a shell makes of a command.
func shellWords(t *testing.T, command string) []string {
	t.Helper()
	shell := exec.CommandContext(t.Context(), "sh", "-euc", `curl() { printf '%s\0' "$@"; }; `+command)
	shell.Env = []string{"PUNCTUAL_API_KEY=the key", "PUNCTUAL_RUN_TOKEN=the token"}
	out, err := shell.Output()
	if err != nil {
		t.Errorf("%v: %s", err, command)
		return []string{""}
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestTheCommandsCallTheServerTheyComeFrom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, forwarded, want string }{
		{"punctual.internal", "https", "https://punctual.internal/v1/jobs"},
		{"127.0.0.1:8080", "", "http://127.0.0.1:8080/v1/jobs"},
		{"[::1]:8080", "", "http://[::1]:8080/v1/jobs"},
		{"a'; rm -rf /;'", "", "http://127.0.0.1:8080/v1/jobs"},
		{"<script>", "javascript", "http://127.0.0.1:8080/v1/jobs"},
	} {
		page := docsOf(t, Config{}, func(r *http.Request) {
			r.Host = c.host
			r.Header.Set("X-Forwarded-Proto", c.forwarded)
		})
		if !strings.Contains(html.UnescapeString(page), "curl '"+c.want+"'") || strings.Contains(page, servedFrom) ||
			strings.Contains(page, "rm -rf") {
			t.Errorf("%s over %q: not %s", c.host, c.forwarded, c.want)
		}
	}
}

func TestThePageSaysHowToAuthenticate(t *testing.T) {
	t.Parallel()
	section := func(c Config) (whole, section string) {
		whole = docsOf(t, c, func(*http.Request) {})
		_, section, _ = strings.Cut(whole, `id="authentication"`)
		section, _, _ = strings.Cut(section, "</section>")
		return whole, section
	}
	_, asking := section(Config{})
	for _, r := range auth.Roles {
		if rolesMay[r] == "" || !strings.Contains(asking, "<code>"+string(r)+"</code><td>"+rolesMay[r]) {
			t.Errorf("the page does not say what the role %s may do", r)
		}
	}
	for _, want := range []string{
		"Authorization: Bearer $PUNCTUAL_API_KEY", "punctual keys create", "Punctual-Run-Token", "X-Request-Id",
		"#unauthenticated",
	} {
		if !strings.Contains(html.UnescapeString(asking), want) {
			t.Errorf("the section does not name %s", want)
		}
	}
	whole, open := section(Config{NoAuth: true})
	if !strings.Contains(open, "--auth=none") || strings.Contains(asking, "--auth=none") {
		t.Error("the page does not say whether the server asks for keys")
	}
	for _, match := range curlOfOperation.FindAllStringSubmatch(whole, -1) {
		if strings.Contains(match[2], "Authorization") {
			t.Errorf("%s sends a key that nobody asks for", match[1])
		}
	}
}
