package command

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// terminal runs job commands against one replica, with a key of its own.
type terminal struct {
	*testing.T
	dir string
	url string // of the replica
	key string
	env []string
}

// file writes a file, and returns its path.
func (t terminal) file(name, text string) string {
	t.Helper()
	path := filepath.Join(t.dir, name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// does runs a command that succeeds, and returns what it says.
func (t terminal) does(args ...string) string {
	t.Helper()
	code, out, notes := apart(t.T, t.env, append([]string{"jobs"}, args...)...)
	if code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, notes)
	}
	return out + notes
}

// fails runs a command that fails, and checks what it says on stderr.
func (t terminal) fails(want string, args ...string) {
	t.Helper()
	code, _, notes := apart(t.T, t.env, append([]string{"jobs"}, args...)...)
	if code != 1 || notes != want {
		t.Errorf("%q: exit code %d, stderr:\n%s\nwant 1:\n%s", args, code, notes, want)
	}
}

// has checks a part of what the API says of a job.
func (t terminal) has(job, field string, want any) {
	t.Helper()
	var shown map[string]any
	must(t, json.Unmarshal([]byte(t.does("show", job)), &shown))
	if fmt.Sprint(shown[field]) != fmt.Sprint(want) {
		t.Errorf("%s of %s is %v, want %v", field, job, shown[field], want)
	}
}

func TestJobsByCommand(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	url := serve(t, dsn, "--auth=keys").API.URL
	key := keysOf(t, dsn, "--role=operator", "--name=first")
	for name, test := range map[string]func(terminal){
		"apply":           applies,
		"preview":         previews,
		"a mistake":       refuses,
		"act":             acts,
		"list":            lists,
		"versions":        rollsBack,
		"runs of later":   dates,
		"reruns":          reruns,
		"approvals":       decides,
		"who did what":    recalls,
		"the way there":   reaches,
		"the page's text": pastes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(terminal{t, t.TempDir(), url, key, []string{"PUNCTUAL_API_URL=" + url, "PUNCTUAL_API_KEY=" + key}})
		})
	}
}

const noJob = "punctual: not_found: There is no job with that id or name\n"

func TestAKeyThatExpiresSoonIsWarnedOf(t *testing.T) {
	t.Parallel()
	dsn := dsnFor(t)
	url := "PUNCTUAL_API_URL=" + serve(t, dsn, "--auth=keys").API.URL
	of := func(name string) []string {
		return []string{url, "PUNCTUAL_API_KEY=" + keysOf(t, dsn, "--role=viewer", "--name="+name, "--expires=1440h")}
	}
	fresh, old := of("fresh"), of("old")
	execute(t, dsn, `UPDATE punctual.api_keys
		SET created_at = created_at - interval '59 days', expires_at = date_trunc('second', expires_at) - interval '59 days'
		WHERE name = 'old'`) // before a replica has read it
	if _, _, notes := apart(t, fresh, "jobs", "list"); notes != "" {
		t.Errorf("of a key with two months to live it says %q", notes)
	}
	code, out, notes := apart(t, old, "jobs", "list", "--json")
	if code != 0 || !json.Valid([]byte(out)) || !regexp.MustCompile(`^warning: the API key expires at 20\S+Z\n$`).MatchString(notes) {
		t.Errorf("exit code %d, stderr %q:\n%s", code, notes, out)
	}
}

// recalls asks who ran a job and who changed what.
func recalls(t terminal) {
	t.does("apply", t.file("recall.json", `{"name": "recall", "target": {"url": "http://127.0.0.1:1/"}}`))
	run := strings.TrimSpace(t.does("run", "recall"))
	says(t.T, t.does("runs", "recall"), "SLOT", "manual", "key first", run)
	var list struct {
		Data []struct {
			ID          string
			TriggeredBy string `json:"triggered_by"`
		}
	}
	must(t, json.Unmarshal([]byte(t.does("runs", "recall", "--json")), &list))
	if len(list.Data) != 1 || list.Data[0].ID != run || !strings.HasPrefix(list.Data[0].TriggeredBy, "key first (") {
		t.Errorf("%+v", list)
	}
	if got := t.does("runs", "recall", "--status=succeeded"); strings.Contains(got, run) {
		t.Errorf("it succeeded:\n%s", got)
	}
	prefix := t.key[:len("punctual_")+16]
	code, out, notes := apart(t.T, t.env, "audit", "--key="+prefix, "--job=recall")
	says(t.T, out, "run.trigger", "job.create   recall  key first")
	if code != 0 || notes != "" || strings.Contains(out, "apply-a") {
		t.Errorf("exit code %d:\n%s%s", code, out, notes)
	}
	if code, out, _ = apart(t.T, t.env, "audit", "--action=job.create", "--limit=1", "--json"); code != 0 ||
		!json.Valid([]byte(out)) || !strings.Contains(out, `"action": "job.create"`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func applies(t terminal) {
	yaml := t.file("jobs.yaml", `
name: apply-a
schedule: {cron: "*/5 * * * *", timezone: Europe/Berlin}
target: {url: http://example.com/, body: {day: 2026-12-01}}
---
- name: apply-b
  schedule: {at: 2126-12-01T09:00:00Z}
  target: {url: http://example.com/}
`)
	for _, want := range []string{"created   apply-a  every 5 min Europe/Berlin\ncreated   apply-b\n", "unchanged apply-a\nunchanged apply-b\n"} {
		if got := t.does("apply", yaml); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	shown := t.does("show", "apply-a", "--yaml")
	says(t.T, shown, "timezone: Europe/Berlin", `day: "2026-12-01"`, "version: 1")
	edited := t.file("shown.yaml", strings.Replace(shown, "*/5 * * * *", "*/10 * * * *", 1))
	if got := t.does("apply", edited); got != "updated   apply-a  every 10 min Europe/Berlin\n" {
		t.Errorf("%q", got)
	}
	t.has("apply-a", "version", 2)
	says(t.T, t.does("apply", t.file("other.yaml", `
- name: apply-c
  schedule: {cron: "0 30 9 1-7 * 2-6"}
  target: {url: http://example.com/}
- name: apply-d
  schedule: {every: 1h, ends_at: 2020-01-01T00:00:00Z}
  target: {url: http://example.com/}
`)), "created   apply-c  on the 1st–7th or Tue–Sat 09:30", `warning: job "apply-c": day of week "2-6" is Tue–Sat, as 1 is Monday`,
		`warning: job "apply-c": day of month and day of week are both restricted`,
		`warning: job "apply-c": its hours are in UTC`, `warning: job "apply-d": no slot is left: see ends_at`)
	t.fails("punctual: read "+t.dir+": is a directory\n", "apply", t.dir)
}

func previews(t terminal) {
	for want, args := range map[string][]string{
		"0 30 9 * * MON-FRI Europe/Berlin: Mon–Fri 09:30\n2026-11-25T09:30:00+01:00\n2026-11-26T09:30:00+01:00\n": {
			"0 30 9 ? * 2-6", "--dialect=quartz", "--timezone=Europe/Berlin", "--slots=2", "--from=2026-11-25T00:00:00Z",
		},
		"30 2 * * * Europe/Berlin: daily 02:30\n2027-03-28T03:30:00+02:00  02:30 does not exist on this day; moved to 03:30\n": {
			`{"cron":"30 2 * * *","timezone":"Europe/Berlin"}`, "--slots=1", "--from=2027-03-28T00:00:00Z",
		},
		"every 1h\nwarning: no slot is left: see ends_at\n": {`{"every":"1h","ends_at":"2020-01-01T00:00:00Z"}`},
	} {
		if got := t.does(append([]string{"preview"}, args...)...); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	says(t.T, t.does("preview", "0 30 9 ? * 2-6"), "0 30 9 ? * 2-6 UTC: Tue–Sat 09:30\n",
		`warning: day of week "2-6" is Tue–Sat, as 1 is Monday; in Quartz and EventBridge 1 is Sunday`,
		"warning: its hours are in UTC, as the schedule has no timezone")
	t.fails("punctual: invalid: 1 field is not valid\n"+
		"  schedule.cron: expression: \"every hour\": these are words; want 5: minute, hour, day of month, month, "+
		"day of week; or 6 with leading seconds; use \"@hourly\"\n", "preview", "every hour")
	t.fails("punctual: --timezone: the schedule names a zone already; leave one of the two out\n",
		"preview", `{"cron":"@daily","timezone":"Asia/Tokyo"}`, "--timezone=UTC")
}

func refuses(t terminal) {
	t.does("apply", t.file("right.json", `{"name":"wrong","schedule":{"every":"1h"},"target":{"url":"http://example.com/"}}`))
	t.fails(`punctual: job "wrong": invalid: 2 fields are not valid
  labls: unknown field; did you mean labels?
  schedule.cron: minute: "61": 61 is outside 0-59
`, "apply", t.file("wrong.json", `[
		{"name":"wrong","schedule":{"cron":"61 * * * *"},"target":{"url":"http://example.com/"},"labls":{}},
		{"name":"beside","target":{"url":"http://example.com/"}}]`))
	t.has("wrong", "version", 1)
	t.has("beside", "state", "active")
	nothing := t.file("nothing.yaml", "name: first\ntarget: {url: http://example.com/}\n---\nschedule: {every: 1h}")
	t.fails("punctual: "+nothing+": job 2 has no name, and jobs are applied by name\n", "apply", nothing)
	t.fails(noJob, "show", "first")
}

func acts(t terminal) {
	bodies := make(chan string, 2)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	t.Cleanup(target.Close)
	t.does("apply", t.file("job.json", `{"name":"act","target":{"url":"`+target.URL+`"}}`))
	says(t.T, t.does("pause", "act", "--until=2126-12-01T09:00:00Z", "--note=the warehouse moves"),
		"job act is paused until 2126-12-01T09:00:00Z")
	t.has("act", "pause_note", "the warehouse moves")
	t.fails("punctual: invalid: 1 field is not valid\n"+
		`  until: "tomorrow" is not an RFC 3339 instant; write one such as "2026-12-01T09:00:00Z" `+
		"or \"2026-12-01T09:00:00+01:00\"\n", "pause", "act", "--until=tomorrow")
	says(t.T, t.does("resume", "act"), "job act is active")
	t.has("act", "state", "active")
	id := t.does("run", "act", "--body="+t.file("body", "plain text"))
	if !regexp.MustCompile(`^[0-9a-f-]{36}\n$`).MatchString(id) {
		t.Errorf("the run is %q", id)
	}
	select {
	case got := <-bodies:
		if got != "plain text" {
			t.Errorf("the body is %q", got)
		}
	case <-bounded(t.T).Done():
		t.Fatal("waited in vain for the run")
	}
	says(t.T, t.does("delete", "act"), "job act is deleted")
	t.fails(noJob, "delete", "act")
}

// dates writes, lists and cancels runs that are pending.
func dates(t terminal) {
	t.does("apply", t.file("dates.json", `{"name": "dates", "target": {"url": "http://127.0.0.1:1/"}}`))
	says(t.T, t.does("run", "dates", "--in=1h", "--key=a/b", "--sequence=7"), "the run with the key a/b is pending; it is due at 20")
	says(t.T, t.does("run", "dates", "--key=a/b"), "a/b was pending and stays as it is")
	says(t.T, t.does("run", "dates", "--key=a/b", "--delay=2h", "--on-conflict=replace", "--sequence=8", "--not-after=3h",
		"--expires-after=1m"), "a/b was pending and is replaced")
	t.does("run", "dates", "--at=2199-01-01T00:00:00Z", "--key=far")
	t.fails("punctual: invalid: 1 field is not valid\n  on_conflict: \"keep\" needs a key next to it, which names the run "+
		"that it is about\n", "run", "dates", "--on-conflict=keep")
	says(t.T, t.does("dated", "dates"), "DUE", "KEY", "a/b", "8", "key first")
	says(t.T, t.does("dated", "list", "dates", "--limit=1"), "a/b", "These are the soonest 1. There are more: raise --limit.")
	says(t.T, t.does("dated", "dates", "--json"), `"key": "far"`, `"due_at": "2199-01-01T00:00:00Z"`)
	says(t.T, t.does("dated", "move", "dates", "a/b", "--in=30m"), "a/b is moved; it is due at 20")
	says(t.T, t.does("dated", "move", "dates", "a/b", "--in=31m", "--sequence=8"), "a/b was pending and stays as it is")
	says(t.T, t.does("dated", "cancel", "dates", "a/b"), "the run with the key a/b is cancelled")
	t.fails("punctual: not_found: There is no job with that id or name, or no run with that key is pending; it may have "+
		"been claimed\n", "dated", "cancel", "dates", "a/b")
}

// reruns reruns a workflow whose first step cannot be sent.
func reruns(t terminal) {
	t.does("apply", t.file("etl.json", `{"name": "etl", "retry": {"max_attempts": 1}, "steps": [
		{"name": "extract", "target": {"url": "http://127.0.0.1:1/"}},
		{"name": "load", "depends_on": ["extract"], "target": {"url": "http://127.0.0.1:1/"}}]}`))
	run := strings.TrimSpace(t.does("run", "etl"))
	await(t.T, "the workflow to end", func() bool { return strings.Contains(t.does("steps", run), "skipped") })
	await(t.T, "its run to have ended", func() bool { return strings.Contains(t.does("runs", "etl"), "dead") })
	if got, want := t.does("rerun", run, "--from=load", "--set=extract=null", "--dry-run"),
		"runs    load\nset     extract\n"; got != want {
		t.Errorf("the dry run says\n%s, want\n%s", got, want)
	}
	t.fails("punctual: invalid: 1 field is not valid\n  from[0]: there is no step \"lod\"; did you mean load?\n",
		"rerun", run, "--from=lod")
	t.fails("punctual: --set load: the result is not JSON; write a text in quotes, a file as @FILE, no result as null\n",
		"rerun", run, "--set=load=done")
	again := strings.TrimSpace(t.does("rerun", run, "--set=load="+`{"a;b":1}`,
		"--set=extract=@"+t.file("rows.json", `{"rows":7}`), "--note=INC-12", "--definition=original"))
	says(t.T, t.does("steps", again), "extract", "set by ", ": INC-12")
}

// decides approves a step by the run of its workflow, and rejects the step of another run.
func decides(t terminal) {
	t.does("apply", t.file("gate.json", `{"name": "gate", "steps": [{"name": "sign", "approval": {}}]}`))
	for command, is := range map[string][2]string{"approve": {"approved", "succeeded"}, "reject": {"rejected", "dead"}} {
		run := strings.TrimSpace(t.does("run", "gate"))
		await(t.T, "the step to wait", func() bool { return strings.Contains(t.does("steps", run), "running") })
		says(t.T, t.does(command, run, "--note=INC-12"), "the step sign of gate is "+is[0])
		await(t.T, "the step to end", func() bool { return strings.Contains(t.does("steps", run), is[1]) })
		code, _, notes := apart(t.T, t.env, "jobs", command, run)
		if want := "was " + is[0] + " by key first"; code != 1 || !strings.Contains(notes, want) {
			t.Errorf("%s again: exit code %d: %s", command, code, notes)
		}
	}
	t.fails("punctual: not_found: There is no run with that id\n", "approve", "00000000-0000-7000-8000-000000000000")
}

func lists(t terminal) {
	t.does("apply", t.file("jobs.json", `[
		{"name":"list-a","labels":{"team":"lists"},"schedule":{"cron":"0 3 1 1 *"},"target":{"url":"http://example.com/"}},
		{"name":"list-b","labels":{"team":"lists"},"paused":true,"schedule":{"every":"1h"},"target":{"url":"http://example.com/"}},
		{"name":"list-c","labels":{"team":"lists"},"schedule":{"at":"2126-12-01T09:00:00Z"},"target":{"url":"http://example.com/"}}]`))
	table := t.does("list", "--label=team=lists")
	says(t.T, table, "NAME    STATE   SCHEDULE                 NEXT SLOT             LAST OUTCOME",
		"list-a  active  0 3 1 1 * UTC ", "list-b  paused  every 1h ",
		"list-c  active  at 2126-12-01T09:00:00Z  2126-12-01T09:00:00Z  -")
	if got := t.does("list", "--label=team=lists", "--state=paused", "--search=LIST"); strings.Count(got, "\n") != 2 {
		t.Errorf("more than one job is paused:\n%s", got)
	}
	says(t.T, t.does("list", "--label=team=lists", "--limit=2"), "list-c", "There are more")
	var list struct {
		Data []struct {
			Name   string
			Target struct{ URL string }
		}
	}
	if err := json.Unmarshal([]byte(t.does("list", "--label=team=lists", "--json")), &list); err != nil ||
		len(list.Data) != 3 || list.Data[0].Name != "list-c" || list.Data[0].Target.URL != "http://example.com/" {
		t.Errorf("%v: %+v", err, list)
	}
	t.fails("punctual: invalid: 1 field is not valid\n"+
		"  state: \"pausd\" is not one of active, paused, completed; did you mean paused?\n", "list", "--state=pausd")
}

func rollsBack(t terminal) {
	for _, schedule := range []string{"1h", "2h", "3h"} {
		t.does("apply", t.file("job.json",
			`{"name":"back","schedule":{"every":"`+schedule+`"},"target":{"url":"http://example.com/"}}`))
	}
	if got := t.does("diff", "back"); got != "schedule.every: \"2h\" -> \"3h\"\n" {
		t.Errorf("%q", got)
	}
	if got := t.does("diff", "back", "1"); got != "schedule.every: \"1h\" -> \"3h\"\n" {
		t.Errorf("%q", got)
	}
	says(t.T, t.does("rollback", "back", "1"), "job back has the definition of version 1 again, as version 4")
	says(t.T, t.does("versions", "back"), "VERSION", "4 ", "key first", "schedule.every (restored version 1)")
	says(t.T, t.does("changes", "back"), "WHEN", "job.restore  key first", "job.create", "definition.schedule.every")
	says(t.T, t.does("changes", "back", "--limit=1"), "These are the newest 1.")
	t.fails("punctual: not_found: There is no job with that id or name, or it has no such version; "+
		"old versions are kept as long as runs\n", "rollback", "back", "9")
}

func reaches(t terminal) {
	key := t.file("key", t.key+"\n")
	t.env = append(t.env, "PUNCTUAL_API_KEY=wrong")
	t.fails("punctual: unauthenticated: Send a valid API key or token in the header Authorization: Bearer <key>; "+
		"the key is that of PUNCTUAL_API_KEY\n", "list")
	t.does("list", "--api-key-file="+key)
	t.fails("punctual: not_found: There is no tenant \"nobody\", which the header Punctual-Tenant names\n",
		"list", "--api-key-file="+key, "--tenant=nobody")
	t.fails("punctual: --api-key-file "+os.DevNull+": the file is empty\n", "list", "--api-key-file="+os.DevNull)
	t.fails("punctual: --api-url: cannot reach http://127.0.0.1:1: connection refused\n",
		"list", "--api-url=http://127.0.0.1:1")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, "<html>welcome</html>")
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(other.Close)
	t.fails("punctual: --api-url: "+other.URL+" answers no JSON, and is not Punctual's API\n", "list", "--api-url="+other.URL)
	t.fails("punctual: --api-url: "+other.URL+" answers 404 Not Found, and is not Punctual's API: \"404 page not found\\n\"\n",
		"delete", "a", "--api-url="+other.URL)
}

var applyText = regexp.MustCompile(`(?s)<pre tabindex="0" id="apply">(.*?)</pre>`)

// pastes runs what the page of a definition shows.
func pastes(t terminal) {
	t.does("apply", t.file("job.yaml", `
name: paste
description: "it's $HOME & EOF <b>\\n"
target: {url: "http://example.com/", secret_headers: {x-key: secret}, body: "EOF\nEOFF\n"}
`))
	jar, err := cookiejar.New(nil)
	must(t, err)
	browser := &http.Client{Jar: jar}
	signedIn, err := browser.PostForm(t.url+"/login", url.Values{"key": {t.key}})
	must(t, err)
	_ = signedIn.Body.Close()
	page, err := browser.Get(t.url + "/jobs/paste/definition")
	must(t, err)
	defer func() { _ = page.Body.Close() }()
	text, err := io.ReadAll(page.Body)
	must(t, err)
	found := applyText.FindSubmatch(text)
	if found == nil {
		t.Fatalf("the page has no command:\n%s", text)
	}
	pasted := html.UnescapeString(string(found[1]))
	shell := exec.CommandContext(bounded(t.T), "sh", "-c", pasted)
	shell.Env = []string{"PATH=" + filepath.Dir(binary(t.T)) + ":" + os.Getenv("PATH"), "PUNCTUAL_API_KEY=" + t.key}
	if out, err := shell.CombinedOutput(); err != nil || string(out) != "unchanged paste\n" {
		t.Errorf("%v: %s\n%s", err, out, pasted)
	}
}
