package dashboard

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"punctual/httpapi"
	"punctual/httpapi/client"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// bury makes open dead letters of a job, as its runs leave them.
func (s site) bury(job string, reason domain.Reason, n int) {
	s.t.Helper()
	s.execute(`
		INSERT INTO punctual.dead_letters (run_id, job_id, tenant, job_name, job_version, scheduled_for, trigger, reason,
			attempts, http_status, error)
		SELECT gen_random_uuid(), id, tenant, name, version, now() - n * interval '1 h', 'schedule', $2, 5,
			CASE WHEN $4 THEN 503 END,
			CASE WHEN $4 THEN 'the target answered 503' ELSE 'no answer within 5s' END
		FROM punctual.jobs, generate_series(1, $3::integer) n
		WHERE name = $1`, job, reason, n, reason == domain.ReasonHTTP5xx)
}

// labelled creates jobs with a label, all at once.
func (s site) labelled(label string, n int) {
	s.t.Helper()
	name, value, _ := strings.Cut(label, "=")
	api := client.New(s.url)
	for made := 0; made < n; {
		var batch httpapi.BatchInput
		for range min(n-made, 100) {
			var job httpapi.JobInput
			job.Name = fmt.Sprintf("%s-%d", value, made)
			job.Labels = map[string]string{name: value}
			job.Schedule.Every = jobspec.DurationOf(24 * 60 * 60 * 1e9)
			job.Target.URL = "http://example.com/"
			batch.Jobs = append(batch.Jobs, job)
			made++
		}
		if _, err := api.Do(s.t.Context(), http.MethodPost, "/v1/jobs/batch", batch, nil); err != nil {
			s.t.Fatal(err)
		}
	}
}

// operate carries operations on until none is left, as replicas do.
func (s site) operate() {
	s.t.Helper()
	for left := true; left; {
		var err error
		if _, left, err = s.store.Letters.Operate(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// counts checks how many rows a condition on a table selects.
func (s site) counts(want int, table, condition string) {
	s.t.Helper()
	var n int
	if err := s.store.Pool().QueryRow(s.t.Context(),
		`SELECT count(*) FROM punctual.`+table+` WHERE `+condition).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	if n != want {
		s.t.Errorf("%d %s are such that %s, want %d", n, table, condition, want)
	}
}

func TestTheOverviewSaysWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	b := s.as("default", "editor")
	b.create("healthy")
	b.create("broken")
	b.get("/").want(200).shows("No job fails.").hides("Needs attention")
	s.bury("broken", domain.ReasonHTTP5xx, 3)
	p := sound(b.get("/").want(200).shows("Needs attention", "<strong>1</strong> failing job ", "<strong>3</strong> open dead letters",
		">broken</a>", "503 Service Unavailable", "/trigger", "/pause"))
	p.hides(">healthy</a>")
	b.get("/jobs?search=state:failing").want(200).shows("broken").hides("healthy")
	b.get("/jobs?search=state:overdue").want(200).hides("broken", "healthy")
	s.as("default", "viewer").get("/").want(200).shows("Needs attention").hides("/trigger", "/pause")
	s.as("default", "submitter").get("/").want(200).hides("/trigger", "/pause")

	s.execute(`UPDATE punctual.deployment SET archive_command = 'cat > %d'`)
	b.get("/").want(200).hides("cannot be archived")
	s.execute(`INSERT INTO punctual.archives (day, part, failures) VALUES ('2026-01-02', 1, 2)`)
	sound(b.get("/").want(200).shows("<strong>1 day of runs cannot be archived</strong>, the oldest 2026-01-02", "failed 2 times"))
}

// What the overview counts as overdue is of the jobs to which it leads.
func TestWhatIsOverdueLeadsToItsJobs(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.get("/").want(200).hides("overdue now <small>")
	for _, name := range []string{"slot", "run", "well"} {
		b.create(name)
	}
	for range 32 {
		b.post("/jobs/run/trigger").want(303)
	}
	s.execute(`UPDATE punctual.ready SET due_at = now() - interval '6 min'`)
	s.execute(`UPDATE punctual.schedules SET next_run_at = now() - interval '1 min', scheduled_for = now() - interval '1 min'
		WHERE job_id = (SELECT id FROM punctual.jobs WHERE name = 'slot')`)
	p := sound(b.get("/").want(200)).shows("<strong>33</strong> overdue now <small>of 2 jobs, the oldest 6 min")
	link := between(p.body, `<a class="tile amber" href="`, `"`)
	b.get(link).want(200).shows(">slot</a>", ">run</a>").hides(">well</a>")
}

// Paused never looks like running, and the page says who did it to those who may know.
func TestAPausedJobSaysWho(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	editor := s.as("default", "editor")
	editor.create("n")
	editor.post("/jobs/n/pause", "note", "why").want(303)
	viewer := s.as("default", "viewer")
	viewer.get("/jobs/n").want(200).shows("banner amber", "by key editor (", "why")
	viewer.get("/jobs").want(200).shows(`tr class="amber"`, "by key editor (", ": <bdi>why</bdi>")
}

// One cause with many victims is one line, and is dealt with as one.
func TestAGroupOfDeadLettersIsReplayed(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("a")
	b.create("b")
	s.bury("a", domain.ReasonHTTP5xx, 30)
	s.bury("a", domain.ReasonTimeout, 2)
	s.bury("b", domain.ReasonHTTP5xx, 1)
	p := sound(b.get("/dead-letters").want(200).shows(">30</a>", ">2</a>", ">1</a>"))
	if n := strings.Count(p.body, `<tr><td><a href="/jobs/`); n != 3 {
		t.Errorf("%d groups: %s", n, p.body)
	}
	b.get("/dead-letters?reason=timeout").want(200).shows(">2</a>").hides(">30</a>")
	job := hiddenIn(t, p.body, ">30</a>", "job_id")
	sound(b.get("/dead-letters?each=1&reason=http_5xx&job_id=" + job).want(200).shows("Each one"))
	group := []string{"job_id", job, "reason", "http_5xx"}
	sound(b.post("/dead-letters/resolve", group...).want(200).shows("Resolve 30 dead letters?", "newest of each job"))
	s.counts(0, "dead_letters", "resolved_at IS NOT NULL")
	sure := append(group, "sure", "1", "note", "it is mended")
	b.post("/dead-letters/resolve", slices.Concat(sure, []string{"max_per_second", "many"})...).want(422).
		shows("max_per_second")
	operation := b.post("/dead-letters/resolve", sure...).want(303).to()
	s.operate()
	sound(b.get(operation).want(200).shows("Resolve 30 dead letters of a (dead because answered with 5xx)", "30 of 30",
		"it is mended", `aria-current="page">Dead letters`))
	sound(b.get("/operations").want(200).shows("Resolve 30 dead letters (dead because answered with 5xx)").hides("anybody"))
	s.counts(30, "dead_letters", "resolved_at IS NOT NULL AND reason = 'http_5xx'")
}

// An operation that is done says what became of the runs that it made.
func TestAReplayThatHelpedNothingSaysSo(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("a")
	s.bury("a", domain.ReasonHTTP5xx, 3)
	operation := b.post("/dead-letters/replay", "job", "a", "sure", "1", "max_per_second", "1000").want(303).to()
	b.get(operation).want(200).hides("Of the runs", "Resume these")
	s.operate()
	p := b.get(operation).want(200)
	p.shows("Replay 3 dead letters of a", "at most 1000 a second", "0 succeeded, 0 died again, 3 have not ended").hides("those that died")
	s.execute(`UPDATE punctual.runs SET status = 'dead', finished_at = now(), reason = 'http_5xx' WHERE trigger = 'replay'`)
	p = sound(b.get(operation).want(200).shows("done: 3 of 3", "0 succeeded, 3 died again"))
	_, link, _ := strings.Cut(p.body, `or <a href="`)
	link, _, _ = strings.Cut(link, `"`)
	sound(b.get("/operations").want(200).shows("3 of 3<br><small>0 succeeded, 3 died again</small>").hides("Resume these"))
	found := b.get(html.UnescapeString(link)).want(200)
	if n := strings.Count(found.body, `<tr>
<td class="tight"><a href="/runs/`); n != 3 {
		t.Errorf("%s lists %d runs: %s", link, n, found.body)
	}
}

// What is replayed or resolved is what is listed, whatever the list was narrowed by.
func TestAllOfTheseAreThoseThatAreListed(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("a", "labels", "team=billing")
	b.create("b")
	s.bury("a", domain.ReasonHTTP5xx, 3)
	s.bury("b", domain.ReasonTimeout, 2)
	recent := url.QueryEscape(time.Now().UTC().Add(-90 * time.Minute).Format(time.RFC3339))
	all := regexp.MustCompile(`(?s)<form method="post" action="/dead-letters/replay" class="actions">(.*?)</form>`)
	hidden := regexp.MustCompile(`name="([^"]*)" value="([^"]*)"`)
	fields := func(form string) (pairs []string) {
		for _, field := range hidden.FindAllStringSubmatch(form, -1) {
			pairs = append(pairs, field[1], html.UnescapeString(field[2]))
		}
		return pairs
	}
	group := regexp.MustCompile(`(?s)<td class="number"><a href="([^"]*)">(\d+)</a>.*?<td class="buttons">(.*?)</form>`)
	for query, want := range map[string]int{
		"": 5, "job=a": 3, "reason=timeout": 2, "label=team%3Dbilling": 3, "from=" + recent: 2, "to=" + recent: 3,
	} {
		p := b.get("/dead-letters?each=1&" + query).want(200)
		if n := strings.Count(p.body, `href="/runs/`); n != want {
			t.Errorf("%q: %d are listed, want %d", query, n, want)
		}
		b.post("/dead-letters/resolve", fields(all.FindString(p.body))...).want(200).
			shows(fmt.Sprintf("Resolve %d dead letters?", want))
		counted := 0
		for _, row := range group.FindAllStringSubmatch(b.get("/dead-letters?"+query).want(200).body, -1) {
			n, _ := strconv.Atoi(row[2])
			if listed := strings.Count(b.get(html.UnescapeString(row[1])).want(200).body, `href="/runs/`); listed != n {
				t.Errorf("%q: a group of %d leads to %d dead letters", query, n, listed)
			}
			b.post("/dead-letters/resolve", fields(row[3])...).want(200).shows(fmt.Sprintf("Resolve %d dead letter", n))
			counted += n
		}
		if counted != want {
			t.Errorf("%q: the groups have %d dead letters, want %d", query, counted, want)
		}
	}
	b.post("/dead-letters/resolve", "from", "yesterday").want(422).shows("yesterday")
}

// hiddenIn returns the value of a hidden field of the form in the first table row that has a text.
func hiddenIn(t *testing.T, page, text, field string) string {
	t.Helper()
	for _, row := range strings.Split(page, "<tr>")[1:] {
		if _, rest, ok := strings.Cut(row, `name="`+field+`" value="`); ok && strings.Contains(row, text) {
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
	}
	t.Fatalf("no row with %q has a field %s", text, field)
	return ""
}

func TestManyJobsArePausedAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	s.labelled("team=billing", 120)
	s.labelled("team=other", 3)
	b.post("/jobs/other-1/pause", "note", "broken").want(303)
	b.get("/jobs?search=team%3Dbilling").want(200).shows("All jobs that match:", "Pause…")
	ask := []string{"search", "team=billing", "action", "pause"}
	sound(b.post("/jobs", ask...).want(200).shows("Pause 120 jobs?", "Until"))
	sure := append(ask, "sure", "1", "note", "the warehouse moves", "until", "2126-12-01T09:00")
	operation := b.post("/jobs", sure...).want(303).to()
	s.operate()
	sound(b.get(operation).want(200)).shows("Pause 120 jobs (team=billing)", "120 of 120", "Paused until", "2126-12-01",
		`aria-current="page">Jobs`)
	s.counts(120, "jobs", "paused_until = '2126-12-01T09:00:00Z' AND pause_note = 'the warehouse moves'")
	b.get("/jobs?search=state:paused+team%3Dbilling").want(200).shows("paused", "the warehouse moves")
	b.post("/jobs", "search", "state:paused", "action", "resume").want(200).shows("Resume 121 jobs?").hides("Until")

	undo := []string{"search", hiddenIn(t, b.get("/operations").want(200).body, "Pause 120", "search"), "action", "resume"}
	b.get(operation).shows(`value="`+undo[1]+`"`, "Resume these…")
	b.post("/jobs/billing-3/resume").want(303)
	b.post("/jobs/billing-3/pause", "note", "the warehouse moves").want(303)
	b.get("/jobs?search=" + url.QueryEscape(undo[1]+" billing-3")).want(200).shows(">billing-30</a>").hides(">billing-3</a>")
	b.post("/jobs", undo...).want(200).shows("Resume 119 jobs?")
	b.post("/jobs", append(undo, "sure", "1")...).want(303)
	s.operate()
	s.counts(2, "jobs", "state = 'paused'")
	b.get("/operations").shows("Resume 119 jobs (that an operation paused)")
	b.post("/jobs", "search", "nothing-like-this", "action", "delete").want(200).shows("Delete 0 jobs?", "Nothing is selected")
}

// What cannot be selected must not select all jobs.
func TestAnOperationOnJobsIsNeverLargerThanAsked(t *testing.T) {
	t.Parallel()
	s := serve(t, true)
	b := s.browser()
	b.create("n")
	for _, search := range []string{"state:failing", "state:overdue n"} {
		b.get("/jobs?search=" + url.QueryEscape(search)).want(200).hides("Delete…")
		b.post("/jobs", "search", search, "action", "delete").want(422)
		b.post("/jobs", "search", search, "action", "delete", "sure", "1").want(422)
	}
	for _, action := range []string{"", "remove", "n/trigger"} {
		if p := b.post("/jobs", "search", "", "action", action, "sure", "1"); p.status/100 != 4 {
			t.Errorf("%s: status %d", action, p.status)
		}
		if p := b.post("/jobs", "search", "", "action", action); p.status/100 != 4 {
			t.Errorf("%s: status %d", action, p.status)
		}
	}
	s.operate()
	s.counts(1, "jobs", "state = 'active'")
	s.counts(0, "operations", "true")
}

func TestAViewerChangesNoManyJobs(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	s.as("default", "editor").create("n")
	viewer := s.as("default", "viewer")
	viewer.get("/jobs").want(200).hides("Delete…", "Pause…")
	viewer.post("/jobs", "search", "", "action", "delete").want(403)
	viewer.post("/jobs", "search", "", "action", "delete", "sure", "1").want(403)
	viewer.post("/dead-letters/replay", "sure", "1").want(403)
}
