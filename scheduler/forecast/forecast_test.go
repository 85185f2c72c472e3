package forecast

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"punctual/scheduler/jobspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a job as the store knows it.
type job struct {
	id   uuid.UUID
	text string // its definition
	next time.Time
}

func (j job) timetable(t testing.TB) *jobspec.Timetable {
	t.Helper()
	var d jobspec.Definition
	if err := json.Unmarshal([]byte(j.text), &d); err != nil {
		t.Fatalf("%s: %v", j.text, err)
	}
	table, err := jobspec.NewTimetable(j.id, d.WithDefaults(), time.Second)
	if err != nil {
		t.Fatalf("%s: %v", j.text, err)
	}
	return table
}

func going() error { return nil }

// id returns an id of its own for each number, in the order of the numbers.
func id(n int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	id[15] = byte(n * 37)
	return id
}

// of returns the forecast for jobs, made with so many groups at a time. Each job asks for a plan, or jobs with the same
// text share one.
func of(t testing.TB, w Window, jobs []job, share bool, groups int) Forecast {
	t.Helper()
	b := New(w, going)
	b.most = groups
	plans := map[string]*Plan{}
	for _, j := range jobs {
		p := plans[j.text]
		if p == nil || !share {
			p = b.Plan(j.timetable(t))
			plans[j.text] = p
		}
		b.Add(j.id, p, j.next)
	}
	f, err := b.Forecast()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

var (
	expressions = []string{
		"* * * * *", "*/5 * * * *", "30 2 * * *", "0 3 * * mon-fri", "0 0 1 4 *", "*/10 * * * * *", "15,45 1-3 * * *",
	}
	zones   = []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"}
	periods = []string{"1s", "7s", "30s", "1m", "90s", "11m", "1h", "25h", "720h"}
)

// drawJob draws a job of any kind whose next slot is the first one of its timetable after an instant near the window.
func drawJob(t *rapid.T, tb testing.TB, n int, w Window) (job, bool) {
	around := func(label string) time.Time {
		return w.From.Add(time.Duration(rapid.IntRange(-4000, 6000).Draw(t, label)) * time.Second)
	}
	var schedule string
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		at := around("at")
		return job{id(n), fmt.Sprintf(`{"schedule":{"at":%q}}`, at.Format(time.RFC3339)), at}, true
	case 1, 2:
		schedule = fmt.Sprintf(`"every":%q`, rapid.SampledFrom(periods).Draw(t, "period"))
	default:
		schedule = fmt.Sprintf(`"cron":%q,"timezone":%q`,
			rapid.SampledFrom(expressions).Draw(t, "cron"), rapid.SampledFrom(zones).Draw(t, "zone"))
	}
	if rapid.IntRange(0, 3).Draw(t, "starts") == 0 {
		schedule += fmt.Sprintf(`,"starts_at":%q`, around("starts_at").Format(time.RFC3339))
	}
	if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
		schedule += fmt.Sprintf(`,"ends_at":%q`, around("ends_at").Add(2*time.Hour).Format(time.RFC3339))
	}
	text := `{"schedule":{` + schedule + `}`
	if jitter := rapid.SampledFrom([]string{"", "0s", "3s", "90s", "10m", "2h"}).Draw(t, "jitter"); jitter != "" {
		text += fmt.Sprintf(`,"jitter":%q`, jitter)
	}
	j := job{id: id(n), text: text + `}`}
	slot, ok := j.timetable(tb).First(around("now"))
	j.next = slot.At
	return j, ok
}

// The instants are around changes of the clock in several zones.
func TestTheForecastIsThatOfEachJobSlotBySlot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		from := rapid.SampledFrom([]string{
			"2026-03-29T00:30:00Z", "2026-10-25T00:00:00Z", "2026-11-01T05:17:31Z", "2026-04-04T14:00:00.25Z",
		}).Draw(r, "from")
		span := time.Duration(rapid.IntRange(1, 4000).Draw(r, "span")) * time.Second
		step := rapid.SampledFrom([]time.Duration{
			13 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour,
		}).Draw(r, "step")
		w := window(from, span, step)
		var jobs []job
		for n := range rapid.IntRange(0, 8).Draw(r, "jobs") {
			if j, ok := drawJob(r, t, n, w); ok {
				jobs = append(jobs, j)
				for range rapid.IntRange(0, 3).Draw(r, "alike") {
					jobs = append(jobs, job{id(1000 + len(jobs)), j.text, j.next})
				}
			}
		}
		want := plain(t, w, jobs)
		want.check(r, of(t, w, jobs, false, mostGroups))
		shuffled := rapid.Permutation(jobs).Draw(r, "order")
		want.check(r, of(t, w, shuffled, true, rapid.IntRange(1, 5).Draw(r, "groups")))
	})
}

func window(from string, span, step time.Duration) Window {
	begin, err := time.Parse(time.RFC3339, from)
	if err != nil {
		panic(err)
	}
	return Window{From: begin, To: begin.Add(span), Step: step}
}

func TestStartsAreSpreadOverTheJitter(t *testing.T) {
	t.Parallel()
	w := window("2026-12-01T00:00:00Z", 6*time.Minute, time.Minute)
	const none = "[0 0 0 0 0 0]"
	for _, c := range []struct {
		name, schedule string        // the schedule and what follows it in the definition
		next           time.Duration // from the window's beginning
		slots, starts  string        // by minute
	}{
		{"no jitter", `{"cron":"2 0 * * *"},"jitter":"0s"`, 0, "[0 0 1 0 0 0]", "[0 0 1 0 0 0]"},
		{"the deployment's jitter", `{"cron":"2 0 * * *"}`, 0, "[0 0 1 0 0 0]", "[0 0 1 0 0 0]"},
		{"over four minutes", `{"cron":"0 0 * * *"},"jitter":"4m"`, 0, "[1 0 0 0 0 0]", "[0.25 0.25 0.25 0.25 0 0]"},
		{"beyond the window's end", `{"cron":"5 0 * * *"},"jitter":"4m"`, 0, "[0 0 0 0 0 1]", "[0 0 0 0 0 0.25]"},
		{
			"from a slot before the window", `{"cron":"58 23 * * *"},"jitter":"4m"`, -2 * time.Minute,
			none, "[0.25 0.25 0 0 0 0]",
		},
		{"a slot before the window that was claimed", `{"cron":"58 23 * * *"},"jitter":"4m"`, 24 * time.Hour, none, none},
		{"over half the gap", `{"cron":"*/4 * * * *"},"jitter":"1h"`, 0, "[1 0 0 0 1 0]", "[0.5 0.5 0 0 0.5 0.5]"},
		{"of an interval of less than a step", `{"every":"40s"},"jitter":"1h"`, 0, "[2 1 2 1 2 1]", "[2 1 2 1 2 1]"},
		{"a one-shot", `{"at":"2026-12-01T00:03:59.999Z"}`, 239999 * time.Millisecond, "[0 0 0 1 0 0]", "[0 0 0 1 0 0]"},
		{"a one-shot that is late", `{"delay":"1s"}`, -1, none, none},
		{"none after ends_at", `{"every":"1m","ends_at":"2026-12-01T00:02:00Z"}`, 0, "[1 1 1 0 0 0]", "[1 1 1 0 0 0]"},
		{
			"none before starts_at", `{"every":"1m","starts_at":"2026-12-01T00:04:00Z"}`, 4 * time.Minute,
			"[0 0 0 0 1 1]", "[0 0 0 0 1 1]",
		},
	} {
		f := of(t, w, []job{{id(1), `{"schedule":` + c.schedule + `}`, w.From.Add(c.next)}}, false, mostGroups)
		if fmt.Sprint(f.Slots) != c.slots || fmt.Sprint(f.Starts) != c.starts {
			t.Errorf("%s: slots %v and starts %v, want %s and %s", c.name, f.Slots, f.Starts, c.slots, c.starts)
		}
	}
}

// What a forecast expects is what the jobs do: their offsets are hashed from their ids.
func TestTheExpectedStartsAreThoseOfManyJobs(t *testing.T) {
	t.Parallel()
	const n = 20_000
	w := window("2026-12-01T00:00:00Z", 20*time.Minute, time.Minute)
	var jobs []job
	due := make([]float64, w.Steps())
	for i := range n {
		j := job{id(i), `{"schedule":{"cron":"0 0 * * *"},"jitter":"15m"}`, w.From}
		jobs = append(jobs, j)
		due[int(j.timetable(t).Due(w.From, nil).Sub(w.From)/w.Step)]++
	}
	f := of(t, w, jobs, true, mostGroups)
	for step, expected := range f.Starts {
		if bound := 5 * math.Sqrt(n/15); math.Abs(due[step]-expected) > bound {
			t.Errorf("minute %d: %g jobs are due, and %g are expected", step, due[step], expected)
		}
	}
	if f.Total != n || f.Busiest[0].Jobs != n || f.Busiest[0].Most[0].ID != id(0) {
		t.Errorf("%d slots; the busiest is %+v", f.Total, f.Busiest[0])
	}
}

func TestMoreJitterLowersThePeak(t *testing.T) {
	t.Parallel()
	w := window("2026-12-01T00:00:00Z", time.Hour, 30*time.Second)
	var jobs []job
	for i := range 300 {
		jobs = append(jobs, job{id(i), `{"schedule":{"cron":"0 0 * * *"}}`, w.From})
	}
	for i := range 30 {
		jobs = append(jobs, job{id(1000 + i), `{"schedule":{"at":"2026-12-01T00:00:00Z"}}`, w.From})
	}
	want := []Peak{
		{0, w.From, 330}, {time.Minute, w.From, 180}, {5 * time.Minute, w.From, 60}, {15 * time.Minute, w.From, 40},
	}
	if got := of(t, w, jobs, true, mostGroups).Spread; !slices.Equal(got, want) {
		t.Errorf("the peaks are %v, want %v", got, want)
	}
}

func TestABuilderGivesUpWhenItIsToldTo(t *testing.T) {
	t.Parallel()
	over, asked := errors.New("over"), 0
	b := New(window("2026-12-01T00:00:00Z", 7*24*time.Hour, time.Minute), func() error {
		asked++
		return over
	})
	for i := range 100 {
		j := job{id(i), fmt.Sprintf(`{"schedule":{"cron":"%d * * * * *"}}`, i%60), b.window.From}
		b.Add(j.id, b.Plan(j.timetable(t)), j.next)
	}
	if f, err := b.Forecast(); !errors.Is(err, over) || f.Slots != nil || asked != 1 {
		t.Errorf("%+v, %v; it asked %d times", f, err, asked)
	}
}

// BenchmarkMillion counts the slots of a day of a million jobs with 12,000 timetables.
func BenchmarkMillion(b *testing.B) {
	w := window("2026-12-01T00:00:00Z", 24*time.Hour, time.Minute)
	var tables []*jobspec.Timetable
	for i := range 12_000 {
		text := fmt.Sprintf(`{"schedule":{"cron":"%d %d * * *","timezone":%q}}`, i%60, i/60%24, zones[i/1440%len(zones)])
		if i >= 7200 {
			text = fmt.Sprintf(`{"schedule":{"every":"1h","starts_at":%q}}`,
				w.From.Add(-time.Duration(i)*time.Second).Format(time.RFC3339))
		}
		tables = append(tables, job{id(i), text, w.From}.timetable(b))
	}
	b.ReportAllocs()
	for b.Loop() {
		f := New(w, going)
		plans := make([]*Plan, len(tables))
		for i, t := range tables {
			plans[i] = f.Plan(t)
		}
		for i := range 1_000_000 {
			f.Add(id(i), plans[i%len(plans)], w.From)
		}
		if known, err := f.Forecast(); err != nil || known.Jobs != 1_000_000 {
			b.Fatal(known.Jobs, err)
		}
	}
}
