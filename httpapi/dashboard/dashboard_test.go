package dashboard

import (
	"context"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/auth"
	"punctual/internal/pgtest"
	"punctual/store"
	"punctual/store/tenants"
)

// site is the pages and the API on a database of their own.
type site struct {
	t     *testing.T
	url   string
	store *store.Store
}

func serve(t *testing.T, noAuth bool) site {
	t.Helper()
	return serveWith(t, Config{NoAuth: noAuth}, auth.OIDC{}, httptest.NewUnstartedServer(nil))
}

// serveWith starts a server, whose address may already be in the config. The API also accepts the tokens of an issuer.
func serveWith(t *testing.T, c Config, tokens auth.OIDC, server *httptest.Server) site {
	t.Helper()
	return serveOn(t, c, tokens, server, store.Options{DatabaseURL: pgtest.DSN(t)})
}

// serveOn is serveWith on a given database.
func serveOn(t *testing.T, c Config, tokens auth.OIDC, server *httptest.Server, on store.Options) site {
	t.Helper()
	on.Master, on.Replica = pgtest.Master(t), true
	s, err := store.Open(t.Context(), on)
	must(t, err)
	t.Cleanup(s.Close)
	must(t, s.Secrets.OpenVault(t.Context()))
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Version, c.Sessions = "test", s.Secrets
	pages, err := New(c)
	must(t, err)
	api, err := httpapi.NewHandler(httpapi.Config{Store: s, Log: c.Log, NoAuth: c.NoAuth, OIDC: tokens, Pages: pages})
	must(t, err)
	server.Config.Handler = api
	server.Start()
	t.Cleanup(server.Close)
	return site{t, server.URL, s}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// key creates a key of a tenant.
func (s site) key(tenant, role string) string {
	s.t.Helper()
	id, err := s.store.Tenants.TenantID(s.t.Context(), tenant)
	must(s.t, err)
	key, _, err := s.store.Tenants.CreateKey(s.t.Context(), id, tenants.NewKey{Name: role, Role: role})
	must(s.t, err)
	return key
}

// execute changes the database directly.
func (s site) execute(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.store.Pool().Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s site) tenant(name string) {
	s.t.Helper()
	if _, err := s.store.Tenants.CreateTenant(s.t.Context(), tenants.Tenant{Name: name, Weight: 1}); err != nil {
		s.t.Fatal(err)
	}
}

// browser is a visitor. It keeps cookies, and does not follow redirects.
type browser struct {
	site
	client *http.Client
	has    string // the ETag of what it has
}

func (s site) browser() browser {
	jar, _ := cookiejar.New(nil)
	return browser{site: s, client: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}
}

// as returns a visitor who has signed in.
func (s site) as(tenant, role string) browser {
	s.t.Helper()
	b := s.browser()
	b.post("/login", "key", s.key(tenant, role)).want(http.StatusSeeOther)
	return b
}

type reply struct {
	t      *testing.T
	path   string
	status int
	header http.Header
	body   string
}

// visit sends a request with a form, or with none, to an address.
func (b browser) visit(method, address, site string, form url.Values) reply {
	b.t.Helper()
	return b.send(method, address, site, form.Encode())
}

// send sends a request with the text of a form.
func (b browser) send(method, address, site, form string) reply {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(form))
	must(b.t, err)
	request.Header.Set("Accept", "text/html")
	if b.has != "" {
		request.Header.Set("If-None-Match", b.has)
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", site)
	}
	response, err := b.client.Do(request)
	must(b.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(b.t, err)
	return reply{b.t, request.Method + " " + request.URL.RequestURI(), response.StatusCode, response.Header, string(body)}
}

func (b browser) get(path string) reply {
	b.t.Helper()
	return b.visit(http.MethodGet, b.url+path, "", nil)
}

// post sends a form of names and values.
func (b browser) post(path string, pairs ...string) reply {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.visit(http.MethodPost, b.url+path, "same-origin", form)
}

func (p reply) want(status int) reply {
	p.t.Helper()
	if p.status != status {
		p.t.Fatalf("%s: status %d, want %d: %s", p.path, p.status, status, p.body)
	}
	return p
}

// to returns where a reply sends the browser.
func (p reply) to() string { return p.header.Get("Location") }

func (p reply) shows(parts ...string) reply {
	p.t.Helper()
	for _, part := range parts {
		if !strings.Contains(p.body, part) {
			p.t.Errorf("%s does not show %q: %s", p.path, part, p.body)
		}
	}
	return p
}

func (p reply) hides(parts ...string) reply {
	p.t.Helper()
	for _, part := range parts {
		if strings.Contains(p.body, part) {
			p.t.Errorf("%s shows %q", p.path, part)
		}
	}
	return p
}

func TestAFormThatCannotBeReadIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	b := serve(t, false).as("default", "editor")
	b.post("/jobs/any/pause", "note", strings.Repeat("x", mostForm)).want(413).shows("larger than 1 MiB")
	b.send(http.MethodPost, b.url+"/jobs/any/pause", "same-origin", "note=%zz").want(400).shows("cannot be read", "%zz")
}

func TestAVisitorSignsInWithAKey(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.browser()
	if at := b.get("/jobs?search=x").want(303).to(); at != "/login?next=%2Fjobs%3Fsearch%3Dx" {
		t.Errorf("sent to %s", at)
	}
	b.get("/login?next=%2Fjobs%3Fsearch%3Dx").want(200).shows(`name="next" value="/jobs?search=x"`)
	b.post("/login", "key", "punctual_wrong").want(401).shows("This key is not valid")
	p := b.post("/login", "key", s.key("default", "viewer"), "next", "/jobs?search=x").want(303)
	if p.to() != "/jobs?search=x" {
		t.Errorf("sent to %s", p.to())
	}
	cookie := p.header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Max-Age="} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie is not %s: %s", part, cookie)
		}
	}
	if strings.Contains(cookie, "punctual_") {
		t.Errorf("the cookie holds the key: %s", cookie)
	}
	b.get("/").want(200).shows("Overview")
	b.post("/logout").want(303)
	b.get("/").want(303)
}

func TestNobodySignsInToAnotherSite(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	for _, next := range []string{"//evil.example/", "https://evil.example/", `/\evil.example`, "javascript:alert(1)", "/\t/evil.example"} {
		at := s.browser().post("/login", "key", s.key("default", "viewer"), "next", next).want(303).to()
		if at != "/" {
			t.Errorf("%q leads to %s", next, at)
		}
	}
}

func TestAKeyOfTheMetricsSeesNoPage(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	s.browser().post("/login", "key", s.key("default", "metrics")).want(403)
}

// A session is worth what its key is worth.
func TestARevokedKeyEndsItsSession(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.as("default", "viewer")
	b.get("/jobs").want(200)
	s.execute(`UPDATE punctual.api_keys SET revoked_at = now()`)
	await(t, "the session to end", func() bool { return b.get("/jobs").status == http.StatusSeeOther })
}

func TestAForgedSessionIsNone(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	for _, value := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAAAA", strings.Repeat("A", 4000)} {
		b := s.browser()
		b.keep(sessionCookie, "/", value)
		b.get("/jobs").want(303)
	}
}

// A page of another site can make a browser send a form, but without the session and not to a change.
func TestAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n")
	b.visit(http.MethodPost, s.url+"/jobs/n/delete", "cross-site", nil).want(403)
	b.get("/jobs/n").want(200)
}

// keep makes the browser keep a cookie.
func (b browser) keep(name, path, value string) {
	b.t.Helper()
	at, err := url.Parse(b.url + path)
	must(b.t, err)
	b.client.Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: value, Path: path}})
}

// create creates a job by the form.
func (b browser) create(name string, more ...string) {
	b.t.Helper()
	b.post("/new", append([]string{
		"name", name, "kind", "cron", "cron", "0 3 * * mon-fri", "timezone", "Europe/Berlin",
		"url", "http://example.com/", "method", "POST",
	}, more...)...).want(303)
}

// paths are the pages that need no id.
var paths = []string{
	"/", "/jobs", "/runs", "/dead-letters", "/operations", "/queues", "/audit", "/settings", "/new", "/new?as=json", "/timeline", "/timeline?span=24h&by=queue",
	"/events", "/dead-letters?each=1", "/jobs?search=state:failing",
	"/forecast", "/forecast?hours=1", "/forecast?hours=168",
}

func TestEveryPageWithNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.as("default", "operator")
	for _, path := range paths {
		sound(b.get(path).want(200))
	}
	b.get("/").shows("Create the first job", "curl -X PUT")
	b.get("/jobs/none").want(404).shows("Not found")
	b.get("/runs/none").want(404)
	b.get("/operations/none").want(404)
	b.get("/events/none").want(404)
}

var inline = regexp.MustCompile(`(?i)<script(?: src="/assets/[a-z/.]+" defer)?>|\son\w+=|\sstyle=|<style`)

// ofTimes matches a cell that begins with a time.
var ofTimes = regexp.MustCompile(`<td[^>]*>(?:<a [^>]*>)?<time `)

// sound checks what every page must be.
func sound(p reply) reply {
	p.t.Helper()
	if got := p.header.Get("Content-Security-Policy"); got != policy {
		p.t.Errorf("%s: the policy is %q", p.path, got)
	}
	for _, found := range inline.FindAllString(p.body, -1) {
		if !strings.Contains(found, `src="/assets/`) {
			p.t.Errorf("%s: %q", p.path, found)
		}
	}
	p.shows("<!doctype html>", `<html lang="en">`, `<main id="main"`, "</html>")
	zone := place(between(p.body, `<body data-zone="`, `"`))
	for _, table := range strings.Split(p.body, "<table ")[1:] {
		head, body, _ := strings.Cut(table, "</thead>")
		if ofTimes.MatchString(body) && !strings.Contains(head, ", "+zone) {
			p.t.Errorf("%s: a table of times does not say that they are in %s: %s", p.path, zone, head)
		}
	}
	if len(p.body) > 100_000 {
		p.t.Errorf("%s: %d bytes", p.path, len(p.body))
	}
	return p
}

// The message links to the form of the backfill that makes up for what the pause swallowed.
func TestAResumedJobLinksToItsBackfill(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily", "kind", "every", "every", "48h")
	b.post("/jobs/daily/pause").want(303)
	s.execute(`UPDATE punctual.jobs SET paused_at = paused_at - interval '60 hours' WHERE name = 'daily'`)
	s.execute(`UPDATE punctual.schedules SET scheduled_for = scheduled_for - interval '48 hours',
		next_run_at = next_run_at - interval '48 hours'`)
	b.post("/jobs/daily/resume").want(303)
	p := b.get("/jobs/daily").want(200).shows("The job is active again: 1 slot passed while it was paused (", "Make up for them")
	found := regexp.MustCompile(`href="(/jobs/daily/backfill\?[^"]*)"`).FindStringSubmatch(p.body)
	if found == nil {
		t.Fatal("no link to the form")
	}
	b.get(html.UnescapeString(found[1])).want(200).shows("<strong>1 slot</strong>, 1 new run")
	b.get("/jobs/daily").hides("active again").shows("1 slot passed while it was paused (", "Make up for them")
	var skip string
	if err := s.store.Pool().QueryRow(t.Context(), `SELECT id FROM punctual.runs WHERE reason = 'paused'`).Scan(&skip); err != nil {
		t.Fatal(err)
	}
	b.get("/runs/" + skip).want(200).shows("Make up for them")
	form, err := url.Parse(html.UnescapeString(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	b.post("/jobs/daily/backfill", "from", form.Query().Get("from"), "to", form.Query().Get("to")).want(303)
	s.execute(`UPDATE punctual.runs SET created_at = created_at - interval '3 days' WHERE reason = 'paused'`)
	b.get("/jobs/daily").hides("Make up")
	b.keep(saidCookie, "/", url.QueryEscape("Well.\nhttps://example.com/"))
	b.get("/jobs").want(200).shows("Well.").hides("https://example.com/")
}

func TestThePageOfALateRunSaysWhy(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily")
	run := b.post("/jobs/daily/trigger").want(303).to()
	b.get(run).want(200).hides("not in time")
	s.execute(`UPDATE punctual.runs SET late = true, due_at = created_at - interval '10 min'`)
	s.execute(`UPDATE punctual.tenants SET frozen_at = now() - interval '1 hour', frozen_by = 'alice', frozen_note = 'a move'`)
	b.get(run).want(200).shows("Why it was not in time", "the tenant was frozen since", "by alice (a move)")
}

func TestTheWayOfAJob(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily", "labels", "team=billing\narea=eu", "description", "for people", "body", `{"a":1}`)
	b.get("/jobs").want(200).shows("daily", "Mon–Fri 03:00 Europe/<wbr>Berlin", "team=billing")
	b.get("/jobs?search=team%3Dbilling+daily").want(200).shows("daily")
	b.get("/jobs?search=state:paused").want(200).shows("No job matches")
	sound(b.get("/jobs/daily").want(200).shows("Mon–Fri 03:00 Europe/Berlin", "next <strong>in", "Next slots"))
	b.post("/jobs/daily/pause", "note", "the warehouse moves", "until", "2126-12-01T09:00").want(303)
	b.get("/jobs/daily").want(200).shows("The job is paused.", "the warehouse moves", "Resume")
	b.get("/jobs/daily").want(200).hides("The job is paused.")
	b.get("/jobs").shows("paused", "the warehouse moves")
	b.post("/jobs/daily/resume").want(303)
	b.get("/jobs/daily").want(200).shows("The job is active again.").hides("Make up")
	run := b.post("/jobs/daily/trigger", "body", `{"b":2}`, "headers", "X-Mine: yes").want(303).to()
	sound(b.get(run).want(200).shows("no live replica serves the queue", "manual", "example.com",
		"curl -X POST &#39;http://example.com/&#39;", "-H &#39;X-Mine: yes&#39;", "--data-binary &#39;{&#34;b&#34;:2}&#39;"))
	b.post(run + "/cancel").want(303)
	b.get(run).want(200).shows("Cancelled.")
	b.get("/runs?status=cancelled").want(200).shows("daily")
	b.get("/jobs/daily/edit").want(200).shows(`value="0 3 * * mon-fri"`, "team=billing", "&#34;a&#34;: 1")
	b.post("/jobs/daily/edit", "name", "daily", "kind", "every", "every", "1h", "url", "http://example.com/2").want(303)
	b.get("/jobs/daily").want(200).shows("The job is saved as version", "every 1 h")
	b.get("/jobs/daily/definition").want(200).shows("http://example.com/2", "curl -X PUT", "schedule:\n  every: 1h",
		"PUNCTUAL_API_URL=&#39;"+s.url+"&#39; punctual jobs apply - &lt;&lt;&#39;EOF&#39;\nname: daily\n").
		hides("for people", "--tenant", "Punctual-Tenant")
	sound(b.get("/jobs/daily/notices").want(200).shows("No notice about this job"))
	sound(b.get("/jobs/daily/changes").want(200).shows("job.update", "schedule.every"))
	sound(b.get("/jobs/daily/changes?version=1").want(200).shows("Version 1 against version 4", "schedule.cron", "Restore version 1"))
	b.post("/jobs/daily/restore", "version", "1", "seen", "3").want(412)
	b.post("/jobs/daily/restore", "version", "1", "seen", "4").want(303)
	b.get("/jobs/daily/changes").want(200).shows("Version 1 is restored.", "restored version 1", "job.restore")
	b.get("/jobs/daily").want(200).shows("Mon–Fri 03:00 Europe/Berlin")
	sound(b.get("/audit").want(200).shows("job.pause"))
	b.post("/jobs/daily/delete").want(303)
	b.get("/jobs/daily").want(404)
}

// A job of every kind has its pages.
func TestAJobOfEveryKind(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	kinds := map[string][]string{
		"cron":  {"cron", "0 3 * * mon-fri", "daily", "Mon–Fri 03:00"},
		"every": {"every", "1h", "hourly", "every 1 h"},
		"at":    {"at", "2126-12-01T09:00:00Z", "once", "once, at 2126-12-01T09:00:00Z"},
		"delay": {"delay", "48h", "later", "once, 2 d after it was written"},
		"none":  {"", "", "by-hand", "runs only when triggered"},
	}
	for kind, k := range kinds {
		b.post("/new", "name", k[2], "kind", kind, k[0], k[1], "url", "http://example.com/").want(303)
		for _, page := range []string{"", "/definition", "/changes", "/notices", "/edit", "/backfill"} {
			sound(b.get("/jobs/" + k[2] + page).want(200))
		}
		b.get("/jobs/" + k[2]).shows(k[3])
		b.get("/jobs").want(200).shows(k[3])
	}
	b.post("/new", "name", "local", "kind", "at", "at", "2126-12-01 09:00", "timezone", "Europe/Berlin",
		"url", "http://example.com/").want(303)
	sound(b.get("/jobs/local").want(200).shows("once, at 2126-12-01T09:00:00 Europe/Berlin"))
	for _, path := range paths {
		sound(b.get(path).want(200))
	}
}

func TestWhyItDidNotRun(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily")
	b.get("/jobs/daily?at=2020-01-01T03:00").want(200).shows("was created", "Explain")
	b.get("/jobs/daily?at=tomorrow").want(200).shows(`aria-invalid="true"`)
}

func TestAMistakeIsShownBesideItsField(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	p := b.post("/new", "name", "n", "kind", "cron", "cron", "61 * * * *", "url", "ftp://x", "headers", "X-Kept: yes").want(422)
	sound(p.shows(`value="61 * * * *"`, `aria-describedby="cron-fault"`, "61 is outside 0-59", `id="url-fault"`, "X-Kept: yes"))
	p = b.post("/new", "name", "n", "kind", "none", "url", "http://example.com/", "headers", "X-Wrong: {{x}}", "labels", "-=1").
		want(422)
	sound(p.shows(`id="headers-fault">X-Wrong: `, `id="labels-fault">`).hides("<code>body.target.headers", "<code>body.labels"))
	p = b.post("/new", "as", "json", "json", "{\n\"name\": \n}").want(422)
	sound(p.shows("line 3", "Not saved"))
	b.post("/new", "as", "json", "json", `{"name":"n","schedule":{"every":"1h"},"target":{"url":"http://example.com"},"colour":1}`).
		want(422).shows("body.colour")
	b.get("/preview?kind=cron&cron=61+*+*+*+*").want(200).shows("61 is outside 0-59").hides("<html")
	b.get("/preview?kind=cron&cron=0+3+*+*+*&timezone=Europe%2FBerlin").want(200).shows("daily 03:00 Europe/Berlin", "<li>")
	b.get("/preview?kind=cron&cron=0+3+13+*+fri").want(200).shows("so either may match", "its hours are in UTC")
	b.get("/preview?kind=at&at=2027-03-28T02:30&timezone=Europe%2FBerlin").want(200).
		shows("once, at 2027-03-28T02:30:00 Europe/Berlin", "2027-03-28T03:30:00", "does not exist")
	b.get("/preview?kind=at").want(200).hides("required", "<li>")
}

// A run is made again with all that the API lets a visitor change. A mistake leaves the form as it was filled in.
func TestARunIsMadeAgainWithChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n", "body", `{"a":1}`)
	run := b.post("/jobs/n/trigger").want(303).to()
	b.post(run + "/cancel").want(303)
	sound(b.get(run).want(200).shows(`name="headers"`, `name="body"`, `name="same_key"`)).hides("<details class=\"menu\" open>")
	p := b.post(run+"/rerun", "headers", "X-Kept: yes\nConnection: close\nHost: x", "body", "{{nobody}}", "same_key", "1").want(422)
	sound(p).shows("Not made again.", `<details class="menu" open>`, `id="headers-fault">Connection: `, "; Host: ",
		"X-Kept: yes\nConnection: close", ">{{nobody}}</textarea>", `value="1" checked`,
		`data-from="`+run+`"`)
	again := b.post(run+"/rerun", "headers", "X-Kept: yes", "body", `{"b":2}`, "same_key", "1").want(303).to()
	b.get(again).want(200).shows("The run was made again.", `<tr><th scope="row">X-Kept</th><td>yes</td></tr>`,
		"--data-binary &#39;{&#34;b&#34;:2}&#39;", "<td>"+strings.TrimPrefix(run, "/runs/")+"</td>")
	b.post(again + "/cancel").want(303)
	b.post(again + "/rerun").want(303)
	b.post("/jobs/n/delete").want(303)
	b.post(again+"/rerun", "body", "kept").want(409).shows("Not made again.", "was deleted", ">kept</textarea>")
}

func TestTheLogOfARunIsALinkAndNoScript(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.post("/new", "as", "json", "json", `{"name":"n","log_url":"https://logs.example.com/?q={{run}}",
		"target":{"url":"http://example.com"}}`).want(303)
	run := b.post("/jobs/n/trigger").want(303).to()
	b.get(run).want(200).hides(">Log</a>")
	s.execute(`UPDATE punctual.runs SET status = 'dead', finished_at = now(), started_at = now(), fence = 7, attempt = 1`)
	link := func(to string) string {
		return `<a href="` + to + `" rel="noopener noreferrer" target="_blank">Log</a>`
	}
	filled := link("https://logs.example.com/?q=" + strings.TrimPrefix(run, "/runs/"))
	sound(b.get(run).want(200).shows(filled))
	answered := func(header string) reply {
		s.execute(`DELETE FROM punctual.attempts`)
		s.execute(`INSERT INTO punctual.attempts (run_id, fence, number, started_at, finished_at, outcome, response_headers)
			VALUES ($1, 7, 1, now(), now(), 'failed', jsonb_build_object('punctual-log-url', $2::text))`,
			strings.TrimPrefix(run, "/runs/"), header)
		return b.get(run).want(200)
	}
	sound(answered("http://own.example.com/a?b#c").shows(link("http://own.example.com/a?b#c")))
	sound(answered("javascript:alert(1)").shows(filled, "is ignored").hides("javascript:"))
}

func TestARoleSeesWhatItMayDo(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	editor, viewer := s.as("default", "editor"), s.as("default", "viewer")
	editor.create("n")
	editor.get("/jobs/n").want(200).shows("Pause", "Run now", "/jobs/n/delete").hides("/audit")
	viewer.get("/jobs/n").want(200).hides("Run now", "/jobs/n/delete", "/jobs/n/pause", ">Edit<")
	viewer.get("/jobs").want(200).hides("/new\"")
	viewer.get("/settings").want(200).hides("API keys", "Freeze or thaw", "Send a test")
	viewer.post("/jobs/n/pause").want(403).shows("needs the role editor")
	viewer.post("/jobs/n/delete").want(403)
	viewer.get("/audit").want(403)
	sound(viewer.get("/jobs/n/edit").want(200).shows("Read-only.", "you are signed in as viewer", "disabled")).hides(">Save<")
	sound(viewer.get("/jobs/n/edit?as=json").want(200).shows("Read-only.", "disabled")).hides(">Save<")
	editor.get("/jobs/n/edit").want(200).shows(">Save<").hides("Read-only.", "disabled")
	viewer.get("/new").want(403).shows("Creating a job needs the role submitter; you are signed in as viewer.")
	viewer.get("/jobs/n/backfill").want(403).shows("Filling in past slots needs the role editor")
	submitter := s.as("default", "submitter")
	submitter.get("/jobs/n").want(200).hides("Run now", "/jobs/n/pause") // the job does not let submitters trigger it
	submitter.get("/new").want(200).shows("one-shots only", ">Save<", `value="delay" selected`).hides(`value="every"`)
	submitter.post("/new", "name", "once", "kind", "delay", "delay", "5m", "url", "http://example.com/").want(303)
	s.as("default", "admin").get("/settings").want(200).shows("API keys").hides(">operator<", "the deployment</option>")
}

// Whoever sees a job sees who changed it. Only who may edit it is offered its versions to restore.
func TestEveryRoleSeesTheChangesOfAJob(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	editor, viewer := s.as("default", "editor"), s.as("default", "viewer")
	editor.create("daily")
	editor.post("/jobs/daily/edit", "name", "daily", "kind", "every", "every", "1h", "url", "http://example.com/").want(303)
	for _, b := range []browser{editor, viewer} {
		sound(b.get("/jobs/daily/changes").want(200).shows("job.create", "job.update", "key editor", "schedule.every").hides("127.0.0.1"))
	}
	editor.get("/jobs/daily/changes?version=1").want(200).shows("schedule.every", "/jobs/daily/restore")
	sound(viewer.get("/jobs/daily/changes?version=1").want(200).shows("schedule.every").hides("/restore"))
	viewer.post("/jobs/daily/restore", "version", "1", "seen", "2").want(403)
}

func TestANewKeyIsShownOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.as("default", "admin")
	p := b.post("/settings/keys", "name", "ci", "role", "viewer").want(200).shows("never shown again", "punctual_")
	key := regexp.MustCompile(`<pre tabindex="0" id="secret">([^<]+)</pre>`).FindStringSubmatch(p.body)
	if key == nil {
		t.Fatal("the key is not shown")
	}
	b.get("/settings").want(200).hides(key[1])
	s.browser().post("/login", "key", key[1]).want(303)
	b.post("/settings/keys", "name", "", "role", "viewer").want(422).shows(`aria-invalid="true"`)
	b.post("/settings/keys", "name", "robot", "role", "viewer", "never", "1").want(200).shows("<td>robot</td>", "<td>never</td>")
	b.post("/settings/keys", "name", "two", "role", "viewer", "never", "1", "expires_at", "2090-01-01T00:00").want(422).
		shows("must not be given together with expires_at")
	s.execute(`UPDATE punctual.tenants SET max_key_age = '30 days'`)
	b.get("/settings").want(200).hides(`name="never"`)
	b.post("/settings/keys", "name", "robot", "role", "viewer", "never", "1").want(422)
	s.execute(`UPDATE punctual.tenants SET max_key_age = NULL`)
	id := regexp.MustCompile(`/settings/keys/([0-9a-f-]{36})/revoke`).FindStringSubmatch(b.get("/settings").body)
	b.post("/settings/keys/" + id[1] + "/revoke").want(303)
	b.get("/").want(200).hides("expires soon")
	s.execute(`UPDATE punctual.api_keys SET expires_at = now() + interval '29 days', created_at = now() - interval '1 year'
		WHERE role = 'admin'`)
	for _, path := range []string{"/", "/settings"} {
		sound(b.get(path).want(200).shows("An API key expires soon:</strong> admin <time"))
	}
	s.as("default", "viewer").get("/").want(200).hides("expires soon")
}

// Whatever is in names, labels, bodies and errors, a page shows it as text.
func TestHostileContentIsText(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	const evil = `</pre><script>alert(1)</script><img src=x onerror=alert(1)>"'`
	b.create("n", "description", evil, "labels", "evil="+evil[:40], "body", evil)
	run := b.post("/jobs/n/trigger", "body", evil).want(303).to()
	b.post("/jobs/n/pause", "note", evil).want(303)
	for _, path := range []string{
		"/", "/jobs", "/jobs/n", "/jobs/n/definition", "/jobs/n/changes", "/jobs/n/edit", "/jobs/n/edit?as=json", run,
		"/runs", "/audit", "/jobs?search=" + url.QueryEscape(evil), "/jobs/n?at=" + url.QueryEscape(evil),
		"/preview?kind=cron&cron=" + url.QueryEscape(evil), "/runs?job=" + url.QueryEscape(evil),
	} {
		if p := b.get(path); strings.Contains(p.body, "<script>") || strings.Contains(p.body, "<img") {
			t.Errorf("%s: %s", path, p.body)
		}
	}
	b.post("/new", "name", evil, "kind", evil, "cron", evil, "url", evil).want(422).hides("<script>", "<img")
}

// The ids of one tenant are nothing to another.
func TestAnotherTenantsPagesAreNotFound(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	s.tenant("alpha")
	alpha, other := s.as("alpha", "admin"), s.as("default", "admin")
	alpha.create("secret-name")
	run := alpha.post("/jobs/secret-name/trigger").want(303).to()
	for _, path := range []string{
		"/jobs/secret-name", "/jobs/secret-name/definition", "/jobs/secret-name/changes", "/jobs/secret-name/edit",
		"/jobs/secret-name/notices",
		"/jobs/secret-name/backfill", run,
	} {
		other.get(path).want(404)
	}
	for _, path := range []string{
		"/jobs/secret-name/pause", "/jobs/secret-name/delete", "/jobs/secret-name/trigger", run + "/cancel", run + "/rerun",
		"/jobs/secret-name/dated/cancel",
	} {
		other.post(path).want(404)
	}
	for _, path := range paths {
		other.get(path).want(200).hides("secret-name")
	}
	operator := s.as("default", "operator")
	operator.post("/tenant", "tenant", "alpha").want(303)
	operator.get("/jobs/secret-name/definition").want(200).shows("jobs apply --tenant=&#39;alpha&#39; - ",
		"-H &#39;Punctual-Tenant: alpha&#39;")
	operator.get("/jobs").want(200).shows("secret-name")
	other.post("/tenant", "tenant", "alpha").want(403)
}

func TestTheBinaryHasItsScripts(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	for _, path := range []string{"/assets/vendor/htmx.min.js", "/assets/app.js", "/assets/style.css", "/assets/icon.svg"} {
		s.browser().get(path).want(200) // make build brings htmx
	}
	s.browser().get("/assets/").want(404)
}

// await waits for a condition.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !met() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A filter that has no field in the form is shown, stays when the form is sent, and can be removed.
func TestAFilterThatIsOnIsShown(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("daily", "labels", "team=a")
	b.post("/jobs/daily/trigger").want(303)
	b.get("/runs").want(200).hides("✕")
	since := "2026-01-01T00:00:00Z"
	p := sound(b.get("/runs?late=true&status=dead&label=team%3Da&label=x%3Dy&from=" + since).want(200))
	p.shows(`<input type="hidden" name="late" value="true">`, `name="from" value="2026-01-01T00:00:00"`, ">late ✕<", ">label team=a ✕<", `href="/runs?from=2026-01-01T00%3A00%3A00Z&amp;label=team%3Da&amp;label=x%3Dy&amp;status=dead"`,
		`href="/runs?from=2026-01-01T00%3A00%3A00Z&amp;label=x%3Dy&amp;late=true&amp;status=dead"`).hides("status dead ✕")
	sound(b.get("/dead-letters?each=1&label=team%3Da").want(200)).shows(">label team=a ✕<", `href="/dead-letters?each=1"`)
	sound(b.get("/audit?resource=job").want(200)).shows(">resource job ✕<", `href="/audit?"`)
	for _, path := range []string{"/runs?job=dail", "/dead-letters?job=dail", "/dead-letters?each=1&job=dail"} {
		sound(b.get(path).want(200)).shows("There is no job with that", `value="dail"`, ">Show<").hides("No run matches")
	}
	b.get("/names?job=dail").want(200).shows(`<datalist id="names"><option value="daily"></datalist>`)
	b.get("/names?job=other").want(200).shows(`<datalist id="names"></datalist>`)
}

// An address that leads nowhere is a page for people, and a problem for programs.
func TestAnAddressWithoutAPageIsAPage(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	viewer := s.as("default", "viewer")
	sound(viewer.get("/nope").want(404).shows("There is no page at /nope.", `href="/jobs"`, "Sign out"))
	sound(s.browser().get("/nope").want(404).shows("There is no page at /nope."))
	if p := sound(viewer.get("/jobs/n/pause").want(405)); p.header.Get("Allow") == "" {
		t.Error("the answer does not say which methods there are")
	}
	viewer.get("/v1/nope").want(404).shows(`"code":"no_route"`)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/nope", http.NoBody)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer answer.Body.Close()
	if got := answer.Header.Get("Content-Type"); answer.StatusCode != 404 || got != "application/problem+json" {
		t.Errorf("a program is told %d, %s", answer.StatusCode, got)
	}
}

// Runs are narrowed by times of the visitor's clock, and a link to a list shows what was in it.
func TestRunsAreNarrowedInTheVisitorsClock(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.keep(zoneCookie, "/", "local%3AEurope%2FBerlin")
	b.create("daily")
	run := b.post("/jobs/daily/trigger").want(303).to()
	sound(b.get("/runs").want(200).shows(run, "Slot, Berlin", "From (Europe/Berlin)", "Copy a link"))
	wall := func(after time.Duration) string {
		return time.Now().Add(after).In(inBerlin(t)).Format("2006-01-02T15:04")
	}
	from, to := wall(-2*time.Minute), wall(2*time.Minute)
	b.get("/runs?zone=Europe%2FBerlin&from="+from+"&to="+to).want(200).hides("✕").
		shows(run, `name="from" value="`+from+`:00"`, `name="to" value="`+to+`:00"`)
	b.get("/runs?to=&from=" + time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)).want(200).shows(run)
	b.get("/runs?zone=UTC&from=" + from).want(200).hides(run) // an hour or two later
	b.get("/runs?from=2026-12-01T02:30:00Z").shows(`name="from" value="2026-12-01T03:30:00"`)
	b.get("/runs?from=soon").want(200).shows("soon ✕")
	b.get("/runs?from=2026-10-25T01:30:00Z").want(200).shows("since <time", "✕") // the second 02:30 of that day
	if got := pinned("/runs?job=a"); !strings.HasPrefix(got, "/runs?job=a&to=20") || pinned(got) != got {
		t.Errorf("pinned: %s", got)
	}
}
