package jobspec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/cron"
)

func TestDurationsOfOtherSystemsAreUnderstood(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1d": "24h", "2w": "336h", "5 minutes": "5m", "5 Minutes": "5m", "1 minute": "1m", "5min": "5m", "1d12h": "36h",
		"1h 30m": "1h30m", "1 hour and 30 minutes": "1h30m", "2 days, 3 hours": "51h",
		"PT5M": "5m", "P1D": "24h", "P1DT12H": "36h", "pt90s": "1m30s", "P2W": "336h", "rate(5 minutes)": "5m",
		"rate(1 day)": "24h", "@every 5m": "5m", "every 10 seconds": "10s", "every 1h30m": "1h30m",
		" 10 secs ": "10s", "5 hrs": "5h", "100 ms": "100ms",
	} {
		meant, ok := durationMeant(text)
		if !ok || meant != want {
			t.Errorf("%q: %q %t, want %q", text, meant, ok, want)
		}
		if _, err := time.ParseDuration(meant); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if says := NotADuration(text); !strings.HasSuffix(says, `; use "`+want+`"`) {
			t.Errorf("%q: %s", text, says)
		}
	}
	for _, text := range []string{
		"", "soon", "1 month", "1y", "P1M", "P1Y", "PT", "P", "0", "5 5m x", "rate()", "rate(5)x", "-5 minutes", "1.5 days",
		"999999999w", "mm", "?", "1 m 1 h", "1 h 5 h", "7",
	} {
		if meant, ok := durationMeant(text); ok {
			t.Errorf("%q: %q", text, meant)
		}
		if says := NotADuration(text); !strings.Contains(says, `such as "90s"`) {
			t.Errorf("%q: %s", text, says)
		}
	}
}

func TestSchedulesOfOtherSystemsAreUnderstood(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"rate(5 minutes)": `{"every":"5m"}`, "cron(0 10 * * ? *)": `{"cron":"0 10 * * *"}`,
		"cron(15 12 ? * 2-6 *)": `{"cron":"15 12 * * MON-FRI"}`, "cron(0 8 1 * ? *)": `{"cron":"0 8 1 * *"}`,
		"cron(0/5 8-17 ? * MON-FRI *)": `{"cron":"0/5 8-17 * * MON-FRI"}`, "cron(0 9 ? * 2#1 *)": `{"cron":"0 9 * * MON#1"}`,
		"cron(0 9 ? * 6L *)": `{"cron":"0 9 * * FRIL"}`, "cron(0 9 L * ? *)": `{"cron":"0 9 L * *"}`,
		"0 10 * * ? *": `{"cron":"0 10 * * *"}`, "@daily": `{"cron":"@daily"}`, "0 3 * * *": `{"cron":"0 3 * * *"}`,
		"5m": `{"every":"5m"}`, "every 5 minutes": `{"every":"5m"}`,
		"at(2026-12-01T09:00:00)": `{"at":"2026-12-01T09:00:00Z"}`, "2026-12-01T09:00:00Z": `{"at":"2026-12-01T09:00:00Z"}`,
	} {
		if meant := (Schedule{}).Meant(text); meant != want {
			t.Errorf("%q: %q, want %s", text, meant, want)
		}
	}
	for _, text := range []string{
		"", "weekly", "cron(0 10 * * ? 2026)", "cron(0 10 * *)", "cron(0 25 * * ? *)", "rate(often)", "at()", "at(noon)",
		strings.Repeat("5 minutes, ", 100),
	} {
		if meant := (Schedule{}).Meant(text); meant != "" {
			t.Errorf("%q: %s", text, meant)
		}
	}
}

// A proposal stands beside the zone that the schedule has, and does not contradict it.
func TestAProposalHeedsTheZone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"at(2027-01-01T09:00:00)":           `; use {"timezone":"Europe/Berlin","at":"2027-01-01T09:00:00"} in place of cron`,
		"CRON_TZ=Asia/Tokyo 0 9 * * *":      "; use schedule.timezone",
		"0 9 * * * Europe/Berlin":           `; use {"cron":"0 9 * * *","timezone":"Europe/Berlin"}`,
		"every day at 9am":                  `; use "0 9 * * *"`,
		"0 9 * * mon, tue":                  "a list has no spaces: write MON,TUE",
		"CRON_TZ=Europe/Berlin 0 9 * * wed": `; use {"cron":"0 9 * * wed","timezone":"Europe/Berlin"}`,
	} {
		problems := Schedule{Cron: text, Timezone: "Europe/Berlin"}.Validate()
		if len(problems) != 1 || !strings.HasSuffix(problems[0].Message, want) {
			t.Errorf("%q: %v, want %q", text, problems, want)
		}
	}
}

func TestATimeOfDayIsACron(t *testing.T) {
	t.Parallel()
	problems := Schedule{Every: mustDuration("24h"), Timezone: "Europe/Berlin"}.Validate()
	if len(problems) != 1 || !strings.Contains(problems[0].Message, `a daily time is a cron such as "0 9 * * *"`) {
		t.Error(problems)
	}
}

// EventBridge and Quartz number the days of the week from 1, Sunday. Here Sunday is 0.
func TestEveryDayOfTheWeekIsTheSameOne(t *testing.T) {
	t.Parallel()
	sunday := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for day := range 7 {
		for _, form := range []string{"cron(0 10 ? * %d *)", "0 10 ? * %d *", "0 0 10 ? * %d *"} {
			text := fmt.Sprintf(form, day+1)
			meant, ok := scheduleMeant(text, "")
			if !ok {
				t.Fatal(text)
			}
			if got, ok := cron.MustParse(meant.Cron).Next(sunday, time.UTC); !ok || got.At.Weekday() != time.Weekday(day) {
				t.Errorf("%s is %s, a %v", text, meant.Cron, got)
			}
		}
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	statuses := []string{"pending", "running", "retrying", "succeeded", "dead", "skipped", "cancelled"}
	for word, want := range map[string]string{
		"failed": "dead", "FAILED": "dead", "error": "dead", "success": "succeeded", "canceled": "cancelled",
		"queued": "pending", "succeedd": "succeeded", "Dead": "dead", "runnin": "running",
		"": "", "x": "", "frobnicated": "", "ded": "dead",
	} {
		if got := DidYouMean(word, statuses...); (want == "") != (got == "") ||
			want != "" && got != "; did you mean "+want+"?" {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := DidYouMean("enabled", "active", "paused", "completed"); got != "; did you mean active?" {
		t.Error(got)
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		24 * time.Hour: "24h", 90 * time.Minute: "1h30m", time.Minute: "1m", 90 * time.Second: "1m30s",
		time.Hour + time.Second: "1h0m1s", 0: "0s", time.Millisecond: "1ms", 10 * time.Second: "10s", 20 * time.Minute: "20m",
		100 * time.Hour: "100h",
	} {
		if got := Short(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
		if back, err := time.ParseDuration(Short(d)); err != nil || back != d {
			t.Errorf("%s: %v %v", d, back, err)
		}
	}
}

func FuzzHints(f *testing.F) {
	for _, seed := range []string{
		"1d", "PT5M", "rate(5 minutes)", "cron(0 10 * * ? *)", "at(2026-12-01T09:00:00)", "5 5", "\xff", "Mon..Fri 09:00",
		"every day at 2am", "TZ=Asia/Tokyo 0 9 * * *", "'0 5 * * *'", "0 5 * * 1 /bin/x", "0 0/30 * 1/1 * ? *",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if meant, ok := durationMeant(text); ok {
			if d, err := time.ParseDuration(meant); err != nil || d <= 0 {
				t.Fatalf("%q: %q", text, meant)
			}
		}
		s, ok := scheduleMeant(text, "")
		if problems := s.Validate(); ok && (len(problems) > 0 || s.Kind() == KindNone) {
			t.Fatalf("%q: %+v %v", text, s, problems)
		}
	})
}
