package dashboard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
	"punctual/store/runs"
)

// policy lets a page load what this server serves, and nothing else. Scripts and styles inside a page do not run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// shown is what the layout shows.
type shown struct {
	Title   string
	Name    string // of the template
	Path    string // of the page, with its query
	Clock   clock
	Posted  bool // a form was sent: the page cannot be fetched again
	Version string
	NoAuth  bool
	Caller  httpapi.Caller
	Said    said
	Frozen  *httpapi.Frozen
	Data    any
}

// May reports whether the visitor's role includes another. What a role may not do is not shown as a button.
func (s shown) May(role string) bool { return s.Caller.Role.Includes(auth.Role(role)) }

// Section reports which part of the navigation a page belongs to.
func (s shown) Section() string {
	if o, ok := s.Data.(operationView); ok && o.OfJobs() {
		return "jobs"
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(s.Path, "/"), "/")
	first, _, _ = strings.Cut(first, "?")
	switch first {
	case "new", "events":
		return "jobs"
	case "operations":
		return "dead-letters"
	}
	return first
}

// templates returns the templates of the pages by name. They are parsed at the first visit: an idle replica that nobody
// visits would keep 3 MB for them.
var templates = sync.OnceValues(func() (map[string]*template.Template, error) {
	layout, err := template.New("layout.html").Funcs(functions).
		ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		own, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		if own, err = own.ParseFS(files, name); err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(path.Base(name), ".html")] = own
	}
	return all, nil
})

// render answers with a page within the layout.
func (v *visit) render(status int, name, title string, data any) error {
	model := shown{
		Title: title, Name: name, Path: v.r.URL.RequestURI(), Version: v.Version, NoAuth: v.NoAuth, Caller: v.caller,
		Said: v.said(), Data: data, Clock: v.clock(), Posted: v.r.Method != http.MethodGet,
	}
	if v.caller.Role != "" {
		if state, err := optional(v, client.Frozen, nil); err == nil {
			model.Frozen = cmp.Or(state.Deployment, state.Tenant)
		}
	}
	return v.answer(status, name, "layout.html", model)
}

func (v *visit) show(name, title string, data any) error {
	return v.render(http.StatusOK, name, title, data)
}

// shows answers with a page, unless what it shows could not be read.
func (v *visit) shows(err error, name, title string, data any) error {
	if err != nil {
		return err
	}
	return v.show(name, title, data)
}

var functions = template.FuncMap{
	"when":     when,
	"told":     toldToPeople,
	"clocked":  func(at any) string { return mark(moment(at), "time", "") },
	"asks":     asks,
	"ago":      ago,
	"until":    until,
	"lasted":   lasted,
	"length":   length,
	"schedule": scheduleWords,
	"strip":    strip,
	"broken": func(job httpapi.Job, ref string) bool {
		return slices.ContainsFunc(job.BrokenLinks, func(id uuid.UUID) bool { return id.String() == ref })
	},
	"plot":     plot,
	"indented": indented,
	"plain":    unquoted,
	"reason":   reasonWords,
	"cause":    func(r *domain.Reason, status *int, err *string) string { return brief(causeOf(r, status, err)) },
	"spelled":  spelled,
	"who":      who,
	"by":       by,
	"value":    value,
	"exact":    exact,
	"text":     text,
	"query":    query,
	"count":    count,
	"join":     strings.Join,
	"seg":      url.PathEscape,
	"dict":     dict,
	"words":    func(list string) any { return closedLists[list] },
	"share":    share,
	"title":    func(word string) string { return strings.ToUpper(word[:1]) + word[1:] },
	"seconds":  seconds,
	"brief":    brief,
	"outcomes": recentStrip,
	"chips":    chips,
	"list":     func(items ...string) []string { return items },
	"pinned":   pinned,
	"place":    func() string { return mark(time.Time{}, "place", "") },
	"labels":   func(labels map[string]string) []string { return pairsOf(labels, "=") },
	"slashed":  slashed,
	"skipped":  httpapi.SkippedWords,
	"steps":    definedGraph,
	"step":     stepWord,
	"stepwhy":  func(s runs.StepState) string { return brief(stepWhy(s)) },
	"names":    stepNames,
	"open":     fewWords,
	"steptook": stepTook,
	"makeup":   backfillPath,
}

// fewWords reports whether differences are shown without being asked for.
func fewWords(all []difference) bool {
	const fields, letters = 6, 300
	size := 0
	for _, d := range all {
		size += len(d.Before) + len(d.After)
	}
	return len(all) <= fields && size <= letters
}

// dict makes a map of names and values, for parts that need several.
func dict(pairs ...any) map[string]any {
	all := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		all[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return all
}

// text returns what a pointer leads to, or nothing.
func text(v any) string {
	value := reflect.ValueOf(v)
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if !value.IsValid() { // nil
		return ""
	}
	return fmt.Sprint(value.Interface())
}

// query returns a page's path with a parameter of its query changed. Without a value, the parameter goes.
func query(page string, name string, value any) string {
	u, err := url.Parse(page)
	if err != nil {
		return page
	}
	values := u.Query()
	if values.Del(name); fmt.Sprint(value) != "" {
		values.Set(name, fmt.Sprint(value))
	}
	if name != "cursor" {
		values.Del("cursor") // a page of another list
	}
	u.RawQuery = values.Encode()
	return u.RequestURI()
}

// indented returns a value as JSON for people.
func indented(v any) string {
	if raw, ok := v.(json.RawMessage); ok {
		var b bytes.Buffer
		if json.Indent(&b, raw, "", "  ") != nil {
			return string(raw)
		}
		return b.String()
	}
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// answer answers with a part of a page. Nothing is sent if it cannot be rendered.
func (v *visit) answer(status int, name, part string, data any) error {
	pages, err := templates()
	if err != nil {
		return fmt.Errorf("parse the templates: %w", err)
	}
	var out bytes.Buffer
	if err := pages[name].ExecuteTemplate(&out, part, data); err != nil {
		return fmt.Errorf("render %s of the page %s: %w", part, name, err)
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	page := v.clock().told(out.Bytes())
	if v.r.Method == http.MethodGet && status == http.StatusOK { // live.js asks for the page every two seconds
		sum := sha256.Sum256(page)
		tag := `"` + hex.EncodeToString(sum[:8]) + `"`
		h.Set("ETag", "W/"+tag)
		if strings.Contains(v.r.Header.Get("If-None-Match"), tag) {
			v.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(page) // the browser may be gone
	return nil
}

// moment returns an instant as a time; the zero time if there is none.
func moment(at any) time.Time {
	switch at := at.(type) {
	case time.Time:
		return at
	case *time.Time:
		if at != nil {
			return *at
		}
	case jobspec.Instant:
		return at.Value()
	}
	return time.Time{}
}

// closedLists are the closed lists of the API, for the options of a form.
var closedLists = map[string]any{
	"status":             domain.Statuses(),
	"reason":             domain.Reasons(),
	"death":              domain.ReasonsOf(domain.StatusDead),
	"once":               []string{"delay", "at"},
	"kind":               []string{"cron", "every", "at", "delay", "event", "none"},
	"method":             []string{"POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"},
	"concurrency":        []string{"allow", "forbid", "replace", "wait", "queue"},
	"missed":             []string{"skip", "fire_once", "fire_all"},
	"missed_concurrency": []jobspec.MissedConcurrency{jobspec.MissedOneAtATime, jobspec.MissedAllow},
}
