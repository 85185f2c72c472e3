package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/problem"
	"punctual/store/letters"
)

// ago returns the instant d before now, as a request writes it.
func ago(d time.Duration) string { return time.Now().UTC().Add(-d).Format(time.RFC3339) }

// hourly is a schedule with slots half an hour away from now, at whatever time of day the test runs.
func hourly() string {
	return fmt.Sprintf(`{"every":"1h","starts_at":%q}`, ago(1000*time.Hour+30*time.Minute))
}

func between(from, to time.Duration, more string) string {
	return fmt.Sprintf(`{"from":%q,"to":%q%s}`, ago(from), ago(to), more)
}

func TestBackfillIsWorkedOnByTheReplicas(t *testing.T) {
	f := newDispatched(t)
	f.healthy.Store(true)
	job := f.create(f.job("a", hourly()))["id"].(string)
	body := between(5*time.Hour, time.Second, `,"note":"why"`)
	const path = "/v1/jobs/a/backfill"
	dry := into[BackfillCount](f.do("POST", path, strings.Replace(body, `{`, `{"dry_run":true,`, 1)).want(200))
	if dry.Matched != 5 || dry.NewRuns != 5 || dry.Timezone != "UTC" || dry.From.Format(time.RFC3339) != dry.FromLocal {
		t.Fatalf("%+v", dry)
	}
	if list := get[List[letters.Operation]](f.service, "/v1/operations"); len(list.Data) != 0 {
		t.Fatalf("a dry run started %+v", list)
	}
	r := f.do("POST", path, body, "Idempotency-Key: k").want(202)
	o := into[letters.Operation](r)
	if o.Kind != "backfill" || o.JobID == nil || o.JobID.String() != job || o.Matched != 5 || *o.MaxPerSecond != 50 ||
		*o.Note != "why" || r.header.Get("Location") != operationPath(o.ID) {
		t.Errorf("%s", r.body)
	}
	var keys []string
	for range 5 {
		got := f.next()
		at, err := time.Parse(time.RFC3339, got.slot)
		if err != nil || got.trigger != "backfill" || got.id != got.run || got.key != fmt.Sprintf("%s:%d", job, at.Unix()) {
			t.Errorf("%+v", got)
		}
		keys = append(keys, got.key)
	}
	if slices.Sort(keys); len(slices.Compact(keys)) != 5 {
		t.Errorf("slots %q", keys)
	}
	if o := get[letters.Operation](f.service, operationPath(o.ID)); o.State != "done" || o.Done != 5 {
		t.Errorf("%+v", o)
	}
	if list := f.items("/v1/runs?trigger=backfill"); len(list) != 5 {
		t.Errorf("%d runs", len(list))
	}

	// The same key returns the first result, even when the request can no longer be met.
	f.do("DELETE", "/v1/jobs/a", "").want(204)
	again := f.do("POST", path, body, "Idempotency-Key: k").want(202)
	if again.header.Get("Idempotent-Replayed") != "true" || into[letters.Operation](again).ID != o.ID {
		t.Errorf("%s", again.body)
	}
	f.do("POST", path, body, "Idempotency-Key: another").code(problem.CodeNotFound)
}

// Days and times without an offset are those of the job's zone, whose summer time ends in the week.
func TestABackfillTakesDaysInTheZoneOfTheJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(fmt.Sprintf(`{"name":"a","schedule":{"cron":"0 6 * * *","timezone":"Pacific/Auckland"},%s}`,
		`"target":{"url":"http://example.com/hook"}`))
	s.create(`{"name":"utc","schedule":{"every":"24h"},"target":{"url":"http://example.com/hook"}}`)
	zone, err := time.LoadLocation("Pacific/Auckland")
	if err != nil {
		t.Fatal(err)
	}
	last := time.Now().In(zone).AddDate(0, 0, -1)
	day := func(back int) time.Time {
		return time.Date(last.Year(), last.Month(), last.Day()-back, 0, 0, 0, 0, zone)
	}
	count := func(job string, from, to any) BackfillCount {
		return into[BackfillCount](s.do("POST", "/v1/jobs/"+job+"/backfill",
			fmt.Sprintf(`{"from":%q,"to":%q,"dry_run":true}`, from, to)).want(200))
	}
	got := count("a", day(7).Format(time.DateOnly), day(0).Format(time.DateOnly))
	if got.Matched != 7 || !got.From.Equal(day(7)) || !got.To.Equal(day(0)) || got.Timezone != "Pacific/Auckland" ||
		got.FromLocal != day(7).Format(time.RFC3339) || got.From.Location() != time.UTC {
		t.Errorf("a week: %+v, want seven slots from %s", got, day(7))
	}
	got = count("a", day(7).Format(time.DateOnly)+"T06:00", day(0).Format(time.DateOnly)+"T06:00:00")
	if got.Matched != 7 || !got.From.Equal(day(7).Add(6*time.Hour)) {
		t.Errorf("times without an offset: %+v", got)
	}
	utc := time.Now().UTC().Truncate(24 * time.Hour)
	got = count("utc", utc.AddDate(0, 0, -3).Format(time.DateOnly), utc.Format(time.DateOnly))
	if got.Matched != 3 || !got.To.Equal(utc) || got.Timezone != "UTC" {
		t.Errorf("a job without a zone: %+v", got)
	}
}

func TestABackfillGoesOneAtATimeUnlessItAllowsOverlap(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("a"))
	for more, want := range map[string]string{
		``: "one_at_a_time", `,"concurrency":"one_at_a_time"`: "one_at_a_time", `,"concurrency":"allow"`: "allow",
	} {
		o := into[letters.Operation](s.do("POST", "/v1/jobs/a/backfill", between(4*time.Hour, time.Minute, more)).want(202))
		if !strings.Contains(string(o.Request), fmt.Sprintf(`"concurrency":%q`, want)) {
			t.Errorf("with %s: %s", more, o.Request)
		}
	}
}

func TestABackfillOnceMoreCarriesItsOwnKey(t *testing.T) {
	f := newDispatched(t)
	f.healthy.Store(true)
	f.create(f.job("a", hourly()))
	body := between(time.Hour, time.Second, "")
	f.do("POST", "/v1/jobs/a/backfill", body).want(202)
	first := f.next()
	f.do("POST", "/v1/jobs/a/backfill", strings.Replace(body, `{`, `{"rerun":true,`, 1)).want(202)
	second := f.next()
	if first.slot != second.slot || second.id == first.id || second.key != second.run {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

func TestBackfillRequestsAreChecked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("a"))
	s.create(`{"name":"none","schedule":{},"target":{"url":"http://example.com/hook"}}`)
	hour := between(time.Hour, time.Minute, "")
	for _, c := range []struct {
		job, body string
		at        []string
	}{
		{"a", `{}`, []string{"body.from", "body.to"}},
		{"a", `{"from":"yesterday","to":5}`, []string{"body.to", "body.from"}},
		{"a", between(time.Minute, time.Hour, ""), []string{"body.to"}},
		{"a", between(time.Minute, time.Minute, ""), []string{"body.to"}},
		{"a", between(time.Hour, -time.Hour, ""), []string{"body.to"}},
		{"a", between(721*time.Hour, time.Hour, ""), []string{"body.from"}},
		{"none", hour, []string{"path.job"}},
		{
			"none", between(721*time.Hour, -time.Hour, `,"max_per_second":0,"note":"`+strings.Repeat("x", 1025)+`"`),
			[]string{"body.note", "body.max_per_second", "path.job", "body.from", "body.to"},
		},
		{"a", between(time.Hour, time.Minute, `,"max_per_second":1001`), []string{"body.max_per_second"}},
		{"a", between(time.Hour, time.Minute, `,"rerun":"yes","dry_run":1`), []string{"body.rerun", "body.dry_run"}},
		{"a", between(time.Hour, time.Minute, `,"concurrency":"forbid"`), []string{"body.concurrency"}},
		{"a", `{"from":"2026-11-31","to":"2026-11-16"}`, []string{"body.from"}},
		{"a", `{"from":"2020-01-01","to":"2020-01-01"}`, []string{"body.from", "body.to"}},
		{"a", between(time.Hour, time.Minute, `,"until":"now"`), []string{"body.until"}},
	} {
		s.do("POST", "/v1/jobs/"+c.job+"/backfill", c.body).blames(c.at...)
	}
	p := s.do("POST", "/v1/jobs/a/backfill",
		`{"from":"2020-01-01T00:00:00Z","to":"2020-01-02T00:00:00Z","dry_run":true}`).code(problem.CodeInvalid)
	if m := p.Errors[0].Message; !strings.HasPrefix(m,
		"2020-01-01T00:00:00Z is further back than runs are kept: at the earliest 20") {
		t.Error(m)
	}
	for _, bounds := range []string{
		`"from":"yesterday","to":"` + ago(0) + `"`, `"from":"` + ago(0) + `","to":"tomorrow"`,
	} {
		p := s.do("POST", "/v1/jobs/a/backfill", "{"+bounds+"}").code(problem.CodeInvalid)
		if m := p.Errors[0].Message; len(p.Errors) != 1 ||
			!strings.HasSuffix(m, `an RFC 3339 instant such as "2026-12-01T09:00:00Z"`) {
			t.Errorf("%s: %+v", bounds, p.Errors)
		}
	}
	for _, ref := range []string{"nobody", "019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42", "a%20b"} {
		s.do("POST", "/v1/jobs/"+ref+"/backfill", hour).code(problem.CodeNotFound, "no job")
	}
	if list := get[List[letters.Operation]](s, "/v1/operations"); len(list.Data) != 0 {
		t.Errorf("started %+v", list)
	}
}
