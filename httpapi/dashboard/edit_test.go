package dashboard

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"
)

var inputs = regexp.MustCompile(`(?s)<input[^>]*? name="([^"]+)"[^>]*>|<textarea[^>]*? name="([^"]+)"[^>]*>(.*?)</textarea>|` +
	`<select[^>]*? name="([^"]+)"[^>]*>(.*?)</select>`)

var (
	inputValue = regexp.MustCompile(` value="([^"]*)"`)
	chosen     = regexp.MustCompile(`<option(?: value="([^"]*)")? selected>([^<]*)`)
)

// filled returns what a browser would send of the page's form of a job, with some fields changed.
func filled(p reply, changes ...string) []string {
	p.t.Helper()
	_, form, found := strings.Cut(p.body, `<form method="post" class="editor">`)
	if !found {
		p.t.Fatalf("%s has no form: %s", p.path, p.body)
	}
	form, _, _ = strings.Cut(form, "</form>")
	values := map[string]string{}
	for _, m := range inputs.FindAllStringSubmatch(form, -1) {
		switch {
		case m[1] != "" && strings.Contains(m[0], `type="radio"`) && !strings.Contains(m[0], " checked"):
		case m[1] != "":
			if value := inputValue.FindStringSubmatch(m[0]); value != nil {
				values[m[1]] = html.UnescapeString(value[1])
			}
		case m[2] != "":
			values[m[2]] = strings.ReplaceAll(html.UnescapeString(m[3]), "\n", "\r\n")
		default:
			values[m[4]] = ""
			if option := chosen.FindStringSubmatch(m[5]); option != nil {
				values[m[4]] = option[1] + option[2]
				if option[1] != "" {
					values[m[4]] = option[1]
				}
			}
		}
	}
	for i := 0; i+1 < len(changes); i += 2 {
		values[changes[i]] = changes[i+1]
	}
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, name, value)
	}
	return pairs
}

// A form that was loaded before another was saved undoes nothing of it, and loses nothing that was typed.
func TestAnEditUndoesNoOtherEdit(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n", "body", "one\ntwo", "labels", "a=1\nb=2", "headers", "X-A: 1")
	first, second := sound(b.get("/jobs/n/edit").want(200)), b.get("/jobs/n/edit").want(200)
	b.post("/jobs/n/edit", filled(first, "cron", "45 4 * * *")...).want(303)
	stale := b.post("/jobs/n/edit", filled(second, "description", "typed", "labels", "b=2")...).want(409)
	sound(stale).shows("Not saved yet", "45 4 * * *", "0 3 * * mon-fri", `value="typed"`, "<td>empty</td>").hides(`type="radio"`)
	b.get("/jobs/n/edit").want(200).shows(`value="45 4 * * *"`).hides(`value="typed"`, "a=1\nb=2 ")
	b.post("/jobs/n/edit", filled(stale)...).want(303)
	b.get("/jobs/n/edit").want(200).shows(`value="45 4 * * *"`, `value="typed"`, ">b=2</textarea>", "one\ntwo", "X-A: 1").hides("a=1")

	mine, theirs := b.get("/jobs/n/edit").want(200), b.get("/jobs/n/edit").want(200)
	b.post("/jobs/n/edit", filled(theirs, "cron", "1 1 * * *", "url", "http://example.com/theirs")...).want(303)
	asked := b.post("/jobs/n/edit", filled(mine, "cron", "2 2 * * *", "description", "mine")...).want(409)
	asked.shows(`name="take-cron" value="yours" checked`, `value="2 2 * * *"`, "1 1 * * *")
	b.post("/jobs/n/edit", filled(asked, "take-cron", "saved")...).want(303)
	b.get("/jobs/n/edit").want(200).shows(`value="1 1 * * *"`, `value="mine"`, "http://example.com/theirs")

	paused := b.get("/jobs/n/edit").want(200) // a pause is a version, and changes nothing of the definition
	b.post("/jobs/n/pause").want(303)
	b.post("/jobs/n/edit", filled(paused, "cron", "3 3 * * *")...).want(303)

	text := b.get("/jobs/n/edit?as=json").want(200)
	b.post("/jobs/n/edit", filled(b.get("/jobs/n/edit"), "cron", "4 4 * * *")...).want(303)
	kept := b.post("/jobs/n/edit?as=json", filled(text, "json", `{"name":"n","schedule":{"every":"1h"},"target":{"url":"http://example.com/"}}`)...)
	sound(kept.want(409)).shows("Not saved yet", "4 4 * * *", "&#34;every&#34;:&#34;1h&#34;")
	b.post("/jobs/n/edit?as=json", filled(kept)...).want(303)
	b.get("/jobs/n").want(200).shows("every 1 h")
}

// An edit writes what was edited, and leaves every default a default.
func TestAnEditWritesOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n", "method", "", "body", `{"a": 1, "b": {"c": 2}}`)
	form := b.get("/jobs/n/edit").want(200).shows(`placeholder="30s, the default"`, "default (allow)", "default (POST)").
		hides(`value="30s"`, `value="5"`, "<option selected>")
	b.get("/new?like=n").want(200).shows(`value="n-copy"`, `placeholder="30s, the default"`).hides(`value="30s"`)
	b.post("/jobs/n/edit", filled(form, "cron", "45 4 * * *")...).want(303)
	lastChange := func(want string) {
		t.Helper()
		diff := between(b.get("/jobs/n/changes").want(200).body, `<table class="diff">`, "</table>")
		var fields []string
		for _, m := range regexp.MustCompile(`<th scope="row">([^<]*)`).FindAllStringSubmatch(diff, -1) {
			fields = append(fields, m[1])
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("the change is of %s, want %s", got, want)
		}
	}
	lastChange("schedule.cron")
	b.post("/jobs/n/edit", filled(b.get("/jobs/n/edit"), "body", `{"a": 3}`)...).want(303)
	b.get("/jobs/n/edit").shows("&#34;a&#34;: 3").hides("&#34;c&#34;")
	b.post("/jobs/n/edit", filled(b.get("/jobs/n/edit"), "body", `{"a": null}`)...).want(422).shows(`id="body-fault"`, "JSON")
	text := b.get("/jobs/n/edit?as=json").want(200)
	b.post("/jobs/n/edit?as=json", filled(text, "json", strings.Replace(
		html.UnescapeString(between(text.body, `class="code">`, "</textarea>")), "45 4", "46 4", 1))...).want(303)
	lastChange("schedule.cron")
	text = b.get("/jobs/n/edit?as=json").want(200)
	b.post("/jobs/n/edit?as=json", filled(text, "json", strings.Replace(
		html.UnescapeString(between(text.body, `class="code">`, "</textarea>")), `"fire_once"`,
		`"fire_all", "concurrency": "allow"`, 1))...).want(303)
	lastChange("missed.concurrency missed.policy")
	b.post("/jobs/n/edit", filled(b.get("/jobs/n/edit"), "missed", "skip")...).want(303)
	lastChange("missed.concurrency missed.policy")
	b.post("/jobs/n/edit", filled(b.get("/jobs/n/edit"), "missed", "fire_all", "missed_concurrency", "allow")...).want(303)
	lastChange("missed.concurrency missed.policy")
	form = b.get("/jobs/n/edit").want(200).shows("<option selected>allow</option>")
	b.post("/jobs/n/edit", filled(form, "concurrency", "forbid")...).want(422).shows(`id="missed_concurrency-fault"`, "concurrency_policy")
	b.post("/jobs/n/edit", filled(form, "missed_concurrency", "")...).want(303)
	lastChange("missed.concurrency")
}

// The form has the limits that a job shares, the jobs that it triggers, and how many runs may wait.
func TestTheFormHasLimitsAndChains(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	s.execute(`INSERT INTO punctual.limits (tenant, name, max_running) SELECT id, 'warehouse', 1 FROM punctual.tenants`)
	b := s.browser()
	b.create("after")
	b.create("n")
	form := b.get("/jobs/n/edit").want(200)
	b.post("/jobs/n/edit", filled(form, "concurrency", "queue", "pending", "7", "limits", "warehouse", "then", "after failed")...).
		want(303)
	form = b.get("/jobs/n/edit").want(200).shows(">warehouse</textarea>", ">after failed</textarea>", `value="7"`)
	b.post("/jobs/n/edit", filled(form, "limits", "warehous")...).want(422).shows(`id="limits-fault"`, "did you mean warehouse")
	b.post("/jobs/n/edit", filled(form, "then", "n")...).want(422).shows(`id="then-fault"`, "circle")
	b.get("/jobs/after/backfill").want(200).hides(`name="chain"`)
	b.get("/jobs/n/backfill?chain=1").want(200).shows(`name="chain" type="checkbox" value="1" checked`)
	from := time.Now().UTC().Add(-time.Minute)
	b.post("/jobs/n/backfill", "from", from.Format(time.RFC3339), "to", from.Add(time.Second).Format(time.RFC3339),
		"chain", "1").want(303)
	var chain string
	must(t, s.store.Pool().QueryRow(t.Context(), `SELECT request ->> 'chain' FROM punctual.operations`).Scan(&chain))
	if chain != "true" {
		t.Errorf("a backfill that is to trigger other jobs has chain %q", chain)
	}
	b.post("/jobs/n/edit", filled(form, "limits", "", "then", "", "pending", "", "concurrency", "")...).want(303)
	b.get("/jobs/n/edit").want(200).hides(">warehouse</textarea>", ">after failed</textarea>", `value="7"`)
}

// between returns the part of a text after one part and before another.
func between(text, from, to string) string {
	_, text, _ = strings.Cut(text, from)
	text, _, _ = strings.Cut(text, to)
	return text
}

// A patch cannot say that a member appears twice. The API refuses it, but for a body, which it keeps as it was written.
// (The first of the two was left out unseen.)
func TestAMemberThatAppearsTwiceIsTold(t *testing.T) {
	t.Parallel()
	b := serve(t, true).browser()
	definition := func(missed, body string) string {
		return `{"name":"n","schedule":{"every":"1h"},` + missed + `"target":{"url":"http://example.com/"` + body + `}}`
	}
	b.post("/new", "as", "json", "json", definition(`"missed":{"policy":"skip"},`, "")).want(303)
	text := b.get("/jobs/n/edit?as=json").want(200)
	b.post("/jobs/n/edit?as=json", filled(text, "json", definition(`"missed":{},"missed":{"policy":"skip"},`, ""))...).
		want(422).shows("appears twice")
	b.post("/jobs/n/edit?as=json", filled(text, "json", definition("", `,"body":{"a":1,"a":2}`))...).want(303)
	b.get("/jobs/n/edit?as=json").want(200).shows("&#34;a&#34;: 1", "&#34;a&#34;: 2")
}
