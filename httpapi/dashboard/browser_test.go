package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"punctual/internal/oidctest"
	"punctual/scheduler/domain"
)

// tab is a page in a real browser.
type tab struct {
	site
	ctx context.Context

	mu       sync.Mutex
	complain []string // what the browser has to say: refused scripts, errors, dialogs
}

// started is the browser that all tests share, because to start one costs as much as most tests do with it.
var started = sync.OnceValues(func() (context.Context, error) {
	if _, err := exec.LookPath("chromium"); err != nil {
		return nil, errors.New("chromium is not installed: .ci/install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"),
		chromedp.WindowSize(1280, 900), chromedp.DisableGPU,
		// Each window would have an address bar that is a page itself, in a process of its own.
		chromedp.Flag("disable-features", "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closed := chromedp.NewContext(allocator)
	stopBrowser = func() { closed(); stop() }
	return ctx, chromedp.Do(ctx, chromedp.Navigate("about:blank"))
})

var stopBrowser = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBrowser()
	os.Exit(code)
}

// chromium returns a tab with an empty profile.
func (s site) chromium(t *testing.T) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a browser: `make prove` does")
	}
	browser, err := started()
	must(t, err)
	ctx, closed := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(closed)
	b := &tab{site: s, ctx: ctx}
	b.t = t
	b.do(chromedp.Navigate("about:blank")) // opens the tab
	b.in("UTC")
	_, err = chromedp.Call(b.ctx, network.SetCookie, // known before: the first page is fetched once
		network.SetCookieParams{Name: zoneCookie, Value: "local%3AUTC", URL: s.url})
	must(t, err)
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(ctx, 10*time.Minute)
	t.Cleanup(cancel)
	go func() {
		for message, err := range chromedp.Console(b.ctx) {
			if err != nil {
				return
			}
			if message.Type == "error" || message.Type == chromedp.ConsoleException {
				b.say(message.Text)
			}
		}
	}()
	if err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*cdppage.EventJavascriptDialogOpening); ok {
			b.say("a dialog: " + e.Message)
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.quiet)
	return b
}

// in puts the browser's clock into a zone.
func (b *tab) in(zone string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
	must(b.t, err)
}

// visitor returns another visitor with the same browser, in a zone that the pages do not know yet.
func (b *tab) visitor(zone string) *tab {
	b.t.Helper()
	ctx, closed := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	b.t.Cleanup(closed)
	other := &tab{site: b.site, ctx: ctx}
	other.do(chromedp.Navigate("about:blank"))
	other.in(zone)
	return other
}

func (b *tab) say(text string) {
	if strings.Contains(text, "the server responded with a status of 4") || // what the test asked for
		strings.Contains(text, "Response Status Error Code 4") { // htmx says so once more
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complain = append(b.complain, text)
}

// do takes steps one after the other. A page that refreshes itself may replace an element between the search for it and
// the step. The step was not taken then, and is tried again.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for _, step := range steps {
		err := chromedp.Do(b.ctx, step)
		for tries := 0; err != nil && strings.Contains(err.Error(), "Could not find node") && tries < 20; tries++ {
			err = chromedp.Do(b.ctx, step)
		}
		must(b.t, err)
	}
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+path), chromedp.WaitVisible("#main"))
}

// write puts a text into a field as a person does.
func (b *tab) write(field, text string) {
	b.t.Helper()
	b.do(chromedp.WaitVisible(field),
		chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`document.querySelector(%q).value = ''`, field)),
		chromedp.SendKeys(field, text))
}

// shows checks what an expression is in the page.
func (b *tab) shows(expression string, want any) {
	b.t.Helper()
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[any](expression))
	if err != nil || got != want {
		b.t.Errorf("%s is %v, want %v: %v", expression, got, want, err)
	}
}

// press clicks a button.
func (b *tab) press(button string) {
	b.t.Helper()
	b.do(chromedp.Click(fmt.Sprintf(`//button[text()=%q]`, button)))
}

// waits waits until an element shows a text.
func (b *tab) waits(selector, want string) {
	b.t.Helper()
	script := fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, want)
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	for {
		found, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script))
		if err == nil && found {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			text, _ := chromedp.Run(b.ctx, chromedp.Text("body"))
			b.t.Fatalf("waited in vain for %s to show %q: %v; the page: %s", selector, want, err, text)
		}
	}
}

// quiet checks that the browser has refused and missed nothing.
func (b *tab) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complain {
		b.t.Errorf("the browser says: %s", c)
	}
}

// Two visitors in two zones ask about one job, pause it and edit it. No hour is wrong, and no edit is lost.
func TestInABrowserTwoZonesAndOneJob(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	s.browser().create("daily")
	b := s.chromium(t)
	berlin, tokyo := b.visitor("Europe/Berlin"), b.visitor("Asia/Tokyo")
	for _, v := range []*tab{berlin, tokyo} {
		v.open("/jobs")
		v.waits(".clock [aria-pressed=true]", map[*tab]string{berlin: "Berlin", tokyo: "Tokyo"}[v])
		v.do(chromedp.Click(`//a[text()="daily"]`))
		v.waits("h1", "daily")
		v.write("#at", "2020-01-01 03:00")
		v.press("Explain")
		v.waits(".answer", "was created")
	}
	for v, at := range map[*tab]string{berlin: "2020-01-01T02:00:00Z", tokyo: "2019-12-31T18:00:00Z"} {
		v.do(chromedp.WaitVisible(`.explain time[datetime="` + at + `"]`))
		v.waits(".explain", "Asked of 2020-01-01 03:00:00")
	}

	berlin.do(chromedp.Click(`//summary[text()="Pause"]`),
		chromedp.Evaluate[chromedp.Void](`document.querySelector('#until').value = '2126-12-01T06:00'`))
	berlin.press("Pause")
	berlin.waits(".banner", "until 2126-12-01 06:00:00")
	s.counts(1, "jobs", "paused_until = '2126-12-01T05:00:00Z'")
	tokyo.open("/jobs/daily")
	tokyo.waits(".banner", "until 2126-12-01 14:00:00")
	tokyo.press("UTC")
	tokyo.waits(".banner", "until 2126-12-01 05:00:00")
	tokyo.press("Job's zone")
	tokyo.waits(".banner", "until 2126-12-01 06:00:00")

	berlin.open("/jobs/daily/edit")
	tokyo.open("/jobs/daily/edit")
	berlin.write("#cron", "45 4 * * *")
	berlin.press("Save")
	berlin.waits("h1", "daily")
	berlin.waits(".lead", "04:45")
	tokyo.write("#description", "written in Tokyo")
	tokyo.press("Save")
	tokyo.waits("[role=alert]", "Not saved yet")
	tokyo.pictures("conflict-of-edits")
	tokyo.waits("main table", "45 4 * * *")
	tokyo.press("Save")
	tokyo.waits("main", "written in Tokyo")
	tokyo.waits(".lead", "04:45")
}

// What was written in a form outlives the session, and the server.
func TestInABrowserAnEditOutlivesItsSession(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	key := s.key("default", "editor")
	visitor := s.browser()
	visitor.post("/login", "key", key).want(303)
	visitor.create("daily")
	b := s.chromium(t)
	b.open("/login?next=/jobs/daily/edit")
	b.write("#key", key)
	b.press("Sign in")
	b.write("#description", "written for an hour")
	b.do(chromedp.Evaluate[chromedp.Void](`window.fetched = fetch; fetch = () => Promise.reject(new TypeError())`))
	b.press("Save")
	b.waits("#stale", "Nothing is saved: the server does not answer.")
	b.do(chromedp.Evaluate[chromedp.Void](`fetch = async () => new Response('no', { status: 503 })`))
	b.press("Save")
	b.waits("#stale", "Nothing is saved: the server answers 503.")
	b.do(chromedp.Evaluate[chromedp.Void](`fetch = window.fetched`))
	s.execute(`UPDATE punctual.api_keys SET revoked_at = now()`)
	await(t, "the session to end", func() bool { return visitor.get("/jobs").status == http.StatusSeeOther })
	b.press("Save")
	b.waits("#stale", "You are signed out, and nothing is saved. Sign in")
	b.pictures("session-gone-in-a-form")
	b.shows(`document.getElementById('description').value`, "written for an hour")
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`fetch('/login', { method: 'POST', redirect: 'manual',
		body: new URLSearchParams({ key: %q }) }).then(() => true)`, s.key("default", "editor")), chromedp.EvalAwaitPromise))
	b.press("Save")
	b.waits("main", "written for an hour")
	b.waits(".actions", "Run now")
}

// A mistake in the cron is said while it is being written, and beside its field when it is saved.
func TestInABrowserAMistakeInTheCron(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.chromium(t)
	b.open("/new")
	b.write("#cron", "61 * * * *")
	b.waits("#preview", "61 is outside 0-59")
	b.write("#cron", "0 3 * * mon-fri")
	b.waits("#preview", "Mon–Fri 03:00")
	b.write("#name", "n")
	b.write("#url", "http://example.com/")
	b.write("#cron", "99 * * * *")
	b.press("Save")
	b.waits(":has(> #cron:focus) #cron-fault", "99 is outside 0-59")
	b.write("#cron", "0 3 * * *")
	b.press("Save")
	b.waits("h1", "n")
}

// What happens is seen without reloading.
func TestInABrowserARunIsSeenLive(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	visitor := s.browser()
	visitor.create("n")
	b := s.chromium(t)
	b.open("/jobs/n")
	b.waits("#live", "It has not run yet.")
	b.do(chromedp.Click(`//summary[text()="Run now"]`))
	b.write("#body", "half a bo")
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('details.menu[open] form').append('a hint')`))
	run := visitor.post("/jobs/n/trigger").want(303).to()
	b.waits("#live .list", "manual")
	visitor.post("/jobs/n/pause", "note", "the warehouse moves").want(303)
	b.waits("h1", "paused")
	b.waits(".banner", "the warehouse moves")
	b.waits(".actions button", "Resume")
	b.pictures("changed-by-another")
	b.shows(`document.querySelector('.lead').textContent.includes('next')`, false)
	b.do(chromedp.SendKeys("#body", "dy")) // the menu is open yet, with its text
	b.shows(`document.activeElement.value`, "half a body")
	b.shows(`document.querySelector('details.menu[open]').innerText.includes('a hint')`, true)
	visitor.post("/settings/freeze", "scope", "tenant").want(303)
	b.waits("#frozen", "Frozen since")
	b.pictures("frozen-by-another")
	b.open(run)
	b.waits(".actions", "Cancel")
	visitor.post(run + "/cancel").want(303)
	b.waits(".answer", "Cancelled.")
	b.waits(".actions", "Rerun…")
	b.shows(`document.querySelector('.actions').innerText.includes('Cancel')`, false)
	b.do(chromedp.Click(`//summary[text()="As a command"]`))
	visitor.post(run + "/rerun").want(303)
	b.waits("#live", "Other runs of this slot")
	b.shows(`document.getElementById('curl').checkVisibility()`, true)
	b.open("/")
	b.waits("#live", "No job fails.")
	s.bury("n", domain.ReasonTimeout, 1)
	b.waits("#live", "Needs attention")
}

// A person pauses more jobs than a page shows by their label, and sees how far that is.
func TestInABrowserManyJobsArePausedByLabel(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	s.labelled("team=billing", 150)
	s.labelled("team=other", 1)
	b := s.chromium(t)
	b.open("/jobs")
	b.write("#filter", "team=billing")
	b.do(chromedp.Click(`//main//button[text()="Search"]`))
	b.waits("main", "All jobs that match:")
	b.press("Pause…")
	b.waits("h1", "Pause 150 jobs?")
	b.write("#note", "the warehouse moves")
	b.press("Pause")
	b.waits(".answer", "running: 0 of 150")
	s.operate()
	b.waits(".answer", "done: 150 of 150") // without reloading
	b.open("/jobs?search=state:paused")
	b.waits("#live .list", "the warehouse moves")
	s.counts(150, "jobs", "pause_note = 'the warehouse moves'")
}

// A person replays the victims of one cause.
func TestInABrowserAGroupOfDeadLettersIsReplayed(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	s.browser().create("daily")
	s.bury("daily", domain.ReasonHTTP5xx, 40)
	s.bury("daily", domain.ReasonTimeout, 1)
	b := s.chromium(t)
	b.open("/dead-letters")
	b.do(chromedp.Click(`//tr[contains(., "503")]//button[text()="Replay…"]`))
	b.waits("h1", "Replay 40 dead letters?")
	b.press("Replay")
	b.waits(".answer", "0 of 40")
	s.operate()
	b.waits(".answer", "done: 40 of 40")
	b.open("/dead-letters")
	b.waits("#live .list", "no answer within 5 s")
	s.counts(40, "runs", "trigger = 'replay'")
}

// A viewer reads everything, and is offered nothing that the role may not do.
func TestInABrowserAViewerMayNot(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	s.as("default", "editor").create("daily")
	s.bury("daily", domain.ReasonHTTP5xx, 1)
	b := s.chromium(t)
	b.open("/login")
	b.write("#key", s.key("default", "viewer"))
	b.press("Sign in")
	b.waits("h1", "Overview")
	for _, path := range []string{"/", "/jobs", "/jobs/daily", "/dead-letters", "/settings"} {
		b.open(path)
		offered, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`[...document.querySelectorAll('main form')].
			filter((f) => f.method === 'post').map((f) => f.action).join(' ')`))
		must(t, err)
		if offered != "" {
			t.Errorf("%s offers %s", path, offered)
		}
	}
	b.waits("h1", "Settings")
	b.waits(".who", "viewer")
	b.keepsWhatItCannotFetch()
}

// keepsWhatItCannotFetch checks that a page says so when the server or the session is gone, and keeps what it shows.
func (b *tab) keepsWhatItCannotFetch() {
	b.t.Helper()
	b.open("/")
	b.waits("#asof", "as of")
	b.waits("#chart", "Expected starts") // a part of another page
	b.shows("document.title", "Overview · Punctual")
	b.do(chromedp.Evaluate[chromedp.Void](`window.fetched = fetch; fetch = () => Promise.reject(new TypeError())`))
	b.waits("#stale", "the server does not answer")
	b.waits("#live.stale", "Needs attention")
	b.pictures("network-gone")
	b.do(chromedp.Evaluate[chromedp.Void](`fetch = window.fetched`))
	b.waits("#live:not(.stale)", "Needs attention")
	b.saysWithinFiveSeconds()
	b.execute(`UPDATE punctual.api_keys SET revoked_at = now()`)
	b.waits("#stale", "You are signed out. Sign in")
	b.waits("#live.stale", "Needs attention")
	b.pictures("session-gone")
}

// ownClock lets a test move the clock of a page, and break what it fetches. pass(ms) returns once nothing is left to
// do.
const ownClock = `{
	let now = 0, last = 0;
	const timers = new Map();
	const soon = setTimeout, add = (every) => (call, after, ...args) => {
		timers.set(++last, { call: () => call(...args), at: now + after, every: every && after });
		return last;
	};
	window.setTimeout = add(false);
	window.setInterval = add(true);
	window.clearTimeout = (id) => timers.delete(id);
	const page = fetch('/', { headers: { Accept: 'text/html' } }).then((answer) => answer.text());
	window.fault = null;
	window.fetch = (path, options) => ({
		hangs: () => new Promise((_, fail) => {
			options.signal.addEventListener('abort', () => fail(options.signal.reason));
		}),
		refuses: () => Promise.reject(new TypeError('Failed to fetch')),
		503: async () => new Response('no', { status: 503 }),
		gone: async () => new Response('no', { status: 404 }),
		ended: async () => new Response('no', { status: 401 }),
	}[window.fault] || (async () => new Response(await page)))();
	window.pass = async (ms) => {
		await page;
		now += ms;
		for (const [id, t] of timers) {
			if (t.at > now) continue;
			if (t.every) t.at += t.every; else timers.delete(id);
			t.call();
		}
		await new Promise((done) => soon(done, 0)); // what follows from it
	};
	window.until = async (met) => { // how long the page's clock runs until then
		let ms = 0;
		for (; ms < 60000 && !met(); ms += 100) await pass(100);
		return ms;
	};
}`

// saysWithinFiveSeconds checks how soon a page says that the server is gone.
func (b *tab) saysWithinFiveSeconds() {
	b.t.Helper()
	added, err := chromedp.Call(b.ctx, cdppage.AddScriptToEvaluateOnNewDocument,
		cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: ownClock})
	must(b.t, err)
	b.open("/")
	for fault, words := range map[string]string{
		"hangs": "the server does not answer", "refuses": "the server does not answer", "503": "the server answers 503",
		"gone": "it is gone", "ended": "You are signed out. Sign in",
	} {
		for _, when := range []int{0, 100, 1900} { // after the last good answer
			took, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64](fmt.Sprintf(`(async () => {
				await pass(%d);
				fault = %q;
				return until(() => document.getElementById('stale').textContent.includes(%q));
			})()`, when, fault, words), chromedp.EvalAwaitPromise))
			must(b.t, err)
			if took < 1000 && fault != "ended" || took > 5000 { // at once would be for a single miss
				b.t.Errorf("that the server %s is said after %v ms", fault, took)
			}
			if when == 0 {
				b.pictures("server-" + fault)
			}
			b.do(chromedp.Evaluate[chromedp.Void](`fault = null; until(() => stale.textContent === '')`, chromedp.EvalAwaitPromise))
			b.shows(`stale.textContent`, "")
		}
	}
	_, err = chromedp.Call(b.ctx, cdppage.RemoveScriptToEvaluateOnNewDocument,
		cdppage.RemoveScriptToEvaluateOnNewDocumentParams(added))
	must(b.t, err)
	b.open("/")
}

// Nothing that others wrote runs in a page.
func TestInABrowserHostileContentDoesNotRun(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	visitor := s.browser()
	const evil = `"></pre></script><script>alert(1)</script><img src=x onerror=alert(1)>`
	visitor.create("n", "description", evil, "body", evil)
	run := visitor.post("/jobs/n/trigger", "body", evil).want(303).to()
	visitor.post("/jobs/n/pause", "note", evil).want(303)
	b := s.chromium(t)
	for _, path := range []string{"/", "/jobs", "/jobs/n", "/jobs/n/definition", "/jobs/n/changes", "/jobs/n/edit", run, "/audit"} {
		b.open(path)
	}
}

// axe finds no serious fault, in light and in dark.
func TestInABrowserThePagesAreAccessible(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	visitor := s.browser()
	visitor.create("n", "labels", "team=billing")
	run := visitor.post("/jobs/n/trigger").want(303).to()
	visitor.post("/jobs/n/pause", "note", "why").want(303)
	failed := s.workflow("etl", etl(), domain.StatusDead, failed()).String()
	b := s.chromium(t)
	b.accessible("/runs/"+failed, "/runs/"+failed+"/rerun?from=check", "/jobs/etl", "/jobs/etl/edit", "/jobs/n", "/jobs/n/definition", "/jobs/n/changes", "/jobs/n/notices", "/jobs/n/edit", "/jobs/n/backfill", run, "/",
		"/jobs", "/runs", "/dead-letters", "/dead-letters?each=1", "/operations", "/queues", "/audit", "/settings", "/new?as=json",
		"/timeline", "/forecast", "/nope") // each kind once
}

// accessible checks that axe finds no serious fault in pages, in light and in dark. Only colours differ in dark.
func (b *tab) accessible(paths ...string) {
	b.t.Helper()
	script, err := os.ReadFile("npm/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatalf("make test installs axe-core: %v", err)
	}
	for _, path := range paths {
		b.open(path)
		b.do(chromedp.Evaluate[chromedp.Void](string(script)))
		for _, look := range []struct{ scheme, rules string }{{"light", ""}, {"dark", ", runOnly: ['color-contrast']"}} {
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}},
			})
			must(b.t, err)
			raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]byte](fmt.Sprintf(`axe.run({ resultTypes: ['violations'], preload: false%s }).then((r) =>
				r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)))`, look.rules), chromedp.EvalAwaitPromise))
			must(b.t, err)
			var found []struct {
				ID, Impact, Help string
				Nodes            []struct{ HTML string }
			}
			must(b.t, json.Unmarshal(raw, &found))
			for _, f := range found {
				b.t.Errorf("%s, %s: %s (%s): %v", path, look.scheme, f.Help, f.Impact, f.Nodes)
			}
		}
	}
}

// Only a browser knows which cookies it sends: the pages and the issuer are two sites here, and the visitor comes back
// from a form of the issuer.
func TestInABrowserAVisitorSignsInAtTheIssuer(t *testing.T) {
	t.Parallel()
	h := welcomingAt(t, "localhost", "punctual", oidctest.SignIn{Asks: true})
	b := h.chromium(t)
	b.accessible("/login")
	b.open("/jobs?search=x")
	b.do(chromedp.Click(`//a[starts-with(text(), "Sign in with")]`), chromedp.WaitVisible(`//button[text()="I am alice"]`),
		chromedp.Click(`//button[text()="I am alice"]`))
	b.waits(".who", "alice · alpha")
	b.waits("h1", "Jobs")
	at, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href"))
	if err != nil || at != h.url+"/jobs?search=x" {
		t.Errorf("the visitor is at %s: %v", at, err)
	}
	b.press("Sign out")
	b.waits("h1", "Punctual")
}
