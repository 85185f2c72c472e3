package httpapi

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"punctual/httpapi/auth"
	"punctual/httpapi/problem"
	"punctual/scheduler/forecast"
	"punctual/scheduler/jobspec"
)

// midnight is the midnight after next.
var midnight = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 2)

// nightly is the query of a window of three hours from midnight on, hour by hour.
var nightly = "?step=1h&from=" + midnight.Format(time.RFC3339) + "&to=" + midnight.Add(3*time.Hour).Format(time.RFC3339)

func TestTheForecastTellsTheSlotsToCome(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for name, schedule := range map[string]string{
		"a": `{"cron":"0 1 * * *"}`, "b": `{"cron":"0 1 * * *","timezone":"UTC"}`, "c": `{"every":"15m"}`,
		"d": `{"at":"` + midnight.Add(90*time.Minute).Format(time.RFC3339) + `"}`,
		"e": `{"cron":"0 12 * * *"}`,
	} {
		s.create(jobOf(name, `,"schedule":`+schedule))
	}
	f := get[Forecast](s, "/v1/forecast"+nightly)
	if !f.From.Equal(midnight) || !f.To.Equal(midnight.Add(3*time.Hour)) || f.Step != "1h" || f.Scope != ScopeTenant ||
		time.Since(f.AsOf) > time.Minute || f.Jobs != 4 || f.Total != 15 || f.Unreadable != 0 {
		t.Errorf("%+v", f)
	}
	if !slices.Equal(f.Slots, []int{4, 7, 4}) || !slices.Equal(f.Starts, []float64{4, 7, 4}) {
		t.Errorf("slots %v, starts %v", f.Slots, f.Starts)
	}
	busy := f.Busiest[0]
	if len(f.Busiest) != 3 || !busy.At.Equal(midnight.Add(time.Hour)) || busy.Slots != 7 || busy.Starts != 7 ||
		busy.Jobs != 4 || busy.Most[0].Name != "c" || busy.Most[0].Starts != 4 || busy.Most[0].Tenant != "default" {
		t.Errorf("the busiest steps are %+v", f.Busiest)
	}
	var jitters []string
	for _, p := range f.Spread[1:] {
		jitters = append(jitters, *p.Jitter)
	}
	if f.Spread[0].Jitter != nil || f.Spread[0].Starts != 7 || !slices.Equal(jitters, []string{"1m", "5m", "15m"}) {
		t.Errorf("the peaks are %+v", f.Spread)
	}
}

// The description lists the jitters that are tried out.
func TestTheJittersOfAForecastAreDescribed(t *testing.T) {
	t.Parallel()
	document := static200(t, "/openapi.json").fields()
	listed := dig(document, "components", "schemas", "Spread", "properties", "jitter", "enum").([]any)
	var want []any
	for _, j := range forecast.Jitters {
		want = append(want, jobspec.Short(j))
	}
	if !slices.Equal(listed, append(want, nil)) {
		t.Errorf("%v are listed, want %v", listed, want)
	}
}

func TestAForecastIsOfTheNextDayUnlessItIsAskedForAnother(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(`{"name":"often","schedule":{"every":"1m"},"jitter":"0s","target":{"url":"http://example.com/"}}`)
	for _, c := range []struct {
		query string
		steps int
		step  time.Duration
		whole bool // whether it begins with a whole step
	}{
		{"", 1440, time.Minute, true},
		{"?step=", 1440, time.Minute, true},
		{"?step=10m&from=&to=", 144, 10 * time.Minute, true},
		{"?step=24h", 1, 24 * time.Hour, true},
		{"?step=60s&from=" + time.Now().Add(2*time.Hour).Format(time.RFC3339), 1440, time.Minute, false},
		{"?step=7s&to=" + time.Now().Add(time.Minute).UTC().Format(time.RFC3339), 0, 7 * time.Second, true},
	} {
		f := get[Forecast](s, "/v1/forecast"+c.query)
		if c.steps > 0 && (len(f.Slots) != c.steps || f.To.Sub(f.From) != 24*time.Hour) || len(f.Starts) != len(f.Slots) ||
			f.Step != jobspec.Short(c.step) || c.whole && f.From.Unix()%int64(c.step/time.Second) != 0 {
			t.Errorf("%s: from %s to %s in %d steps of %s", c.query, f.From, f.To, len(f.Slots), f.Step)
		}
		if c.steps > 0 && (f.Total > 1440 || f.Total < 1438-int(c.step/time.Minute)) {
			t.Errorf("%s: %d slots", c.query, f.Total)
		}
	}
}

func TestWhatIsWrongWithAForecastIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	instant := func(ahead time.Duration) string {
		return url.QueryEscape(time.Now().Add(ahead).UTC().Format(time.RFC3339))
	}
	hour := time.Hour
	for _, c := range []struct {
		query, at string
		says      []string
	}{
		{"step=soon", "query.step", []string{`"soon" is not a duration; write one such as "90s"`}},
		{"step=1d", "query.step", []string{`"1d" is not a duration; use "24h"`}},
		{"step=0s", "query.step", []string{`"0s" is outside 1s to 24h`}},
		{"step=25h", "query.step", []string{`"25h" is outside 1s to 24h`}},
		{"step=-1m", "query.step", []string{`"-1m" is outside 1s to 24h`}},
		{"step=1500ms", "query.step", []string{`"1500ms": must be whole seconds`}},
		{"step=1s", "query.step", []string{"1s makes 86400 steps; at most 10080: write 9s or longer"}},
		{"from=today", "query.from", []string{`"today"`, "2026-12-01T09:00:00Z"}},
		{"to=1796115600", "query.to", []string{`"1796115600"`, "2026-12-01T09:00:00Z"}},
		{"from=" + instant(-hour), "query.from", []string{"is past; write ", "leave it out", "list-runs"}},
		{"from=" + instant(7*24*hour), "query.from", []string{"would end at", "7 days from now"}},
		{"to=" + instant(8*24*hour), "query.to", []string{"7 days from now"}},
		{"to=" + instant(-hour), "query.to", []string{"is not after from, "}},
		{"from=" + instant(2*hour) + "&to=" + instant(hour), "query.to", []string{"is not after from, "}},
		{"scope=tenants", "query.scope", []string{"deployment, tenant", "did you mean tenant?"}},
		{"steps=1m", "query.steps", []string{"unknown parameter; there are: scope, from, to, step", "did you mean step?"}},
	} {
		t.Run(c.query, func(t *testing.T) { s.in(t).do("GET", "/v1/forecast?"+c.query, "").wantMessage(c.at, c.says...) })
	}
	s.do("GET", "/v1/forecast?from=x&to=y&step=z", "").blames("query.from", "query.to", "query.step")
	s.do("GET", "/v1/forecast?step=1s&from="+instant(-hour)+"&to="+instant(5*24*hour), "").
		blames("query.from", "query.step")
}

func TestAForecastOfAllTenantsNeedsAnOperator(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	for _, tenant := range []string{"alpha", "beta"} {
		s.tenant(tenant)
		s.as(tenant, auth.RoleEditor).create(`{"name":"of-` + tenant + `","schedule":{"every":"1h"},"target":{"url":"http://example.com/"}}`)
	}
	for _, role := range []auth.Role{auth.RoleViewer, auth.RoleSubmitter, auth.RoleEditor, auth.RoleAdmin} {
		caller := s.as("alpha", role)
		caller.do("GET", "/v1/forecast?scope=deployment", "").code(problem.CodeForbidden, "operator")
		r := caller.do("GET", "/v1/forecast"+nightly, "").want(200).hides("beta")
		if f := into[Forecast](r); f.Total != 3 || f.Jobs != 1 {
			t.Errorf("%s sees %s", role, r.body)
		}
	}
	operator := s.as("default", auth.RoleOperator)
	for scope, want := range map[FreezeScope]int{ScopeDeployment: 2, ScopeTenant: 0} {
		f := get[Forecast](operator, "/v1/forecast"+nightly+"&scope="+string(scope))
		if f.Jobs != want || f.Total != 3*want || f.Scope != scope {
			t.Errorf("%s: %+v", scope, f)
		}
	}
	if f := get[Forecast](operator.acting("beta"), "/v1/forecast"+nightly); f.Jobs != 1 ||
		f.Busiest[0].Most[0].Tenant != "beta" {
		t.Errorf("for beta: %+v", f)
	}
	s.as("alpha", auth.RoleMetrics).do("GET", "/v1/forecast", "").code(problem.CodeForbidden)
}

func TestAForecastIsReusedForAMinute(t *testing.T) {
	t.Parallel()
	s := serve(t)
	asked := func(query string) Forecast {
		return get[Forecast](s, "/v1/forecast"+query)
	}
	first := asked(nightly)
	s.create(minimal("new"))
	if again := asked(nightly + "&scope=tenant"); !again.AsOf.Equal(first.AsOf) || again.Jobs != 0 {
		t.Errorf("as of %s and %s", first.AsOf, again.AsOf)
	}
	other := asked(strings.Replace(nightly, "step=1h", "step=30m", 1))
	if other.AsOf.Equal(first.AsOf) || len(other.Slots) != 6 {
		t.Errorf("another forecast is answered by the first: %+v", other)
	}
}
