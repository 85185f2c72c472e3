package domain

import (
	"strings"
	"testing"
)

// Schedules as they stand in crontabs, sources and configurations, and what is said of each. "" means that it is
// accepted. "!" in front means that nothing is proposed.
func TestSpellingsOfRealFiles(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		// a field or a unit is missing
		"30 2 1 1": "!it has 4 fields; want 5", "0 9 1 1": "!it has 4 fields", "0 5 * *": "!it has 4 fields",
		"0 9": "!it has 2 fields", "60000": "!it has 1 field;", "": "!it is empty; want 5",
		"30 2 1 jan": `; use "30 2 1 jan *"`, "0 9 * mon-fri": `; use "0 9 * * mon-fri"`, "0 9 1 mon": "!it has 4 fields",
		// Quartz
		"0 0/30 * 1/1 * ? *": `; use "0 0/30 * 1/1 * *"`, "0 30 23 * * ? *": `; use "0 30 23 * * *"`,
		"0 35 15 ? * MON *": `; use "0 35 15 * * MON"`, "0 0 12 ? * 2-6 *": `; use "0 0 12 * * 1-5"`,
		"0 0 8 ? * 2#1 *": `; use "0 0 8 * * 1#1"`, "0 0 8 ? * 6L *": `; use "0 0 8 * * 5L"`,
		"0 27 * * * ? * UTC":   `; use {"cron":"0 27 * * * *","timezone":"UTC"}`,
		"0 30 2 1 1 0 2027":    "!which is Quartz's form, whose days count from 1, Sunday; a year field is not supported",
		"0 0 12 1 1 ? 2027":    "!starts_at and ends_at bound a schedule",
		"0 0 12 * * 2-6 *":     "!days count from 1, Sunday",
		"0 0 12 ? * 2-6":       "",
		"0 0 0 31 2 0 0 2026":  "!it has 8 fields",
		"0 9 * * * *":          "",
		"0 0 12 ? * 10 *":      "!days count from 1, Sunday",
		"0 0 12 ? * 0 *":       "!days count from 1, Sunday",
		"0 0 22-2 ? * MON-FRI": "!write 22-23,0-2",
		"0 0 LW * ?":           "", "0 0 L-2 * ?": "", "cron(0 18 LW * ? *)": `; use "0 18 LW * *"`, "0 0 9 L-3 * ? *": `; use "0 0 9 L-3 * *"`,
		// by hand only
		"0 0 31 2 *": "!a job without a schedule runs only when it is triggered", "0 0 30 2 *": "!runs only when it is triggered",
		// steps that are longer than the field
		"*/90 * * * *": `; use {"every":"1h30m"} in place of cron`, "0 */36 * * *": `; use {"every":"36h"}`,
		"0 */90 * * * *": `; use {"every":"1h30m"}`, "0/120 * * * *": `; use {"every":"2h"}`,
		"0 0 */45 * *": "!a longer period is an every schedule", "5 */36 * * *": "!a longer period is an every schedule",
		"*/90 9 * * *": "!a longer period is an every schedule", "*/90 * * * 1": "!a longer period is an every schedule",
		"*/90 * * * * *": "!a longer period is an every schedule", "*/60 * * * *": "",
		// Jenkins, pg_cron, croniter, croner
		"H/15 * * * *": "!H is Jenkins's; write a number, and let jitter spread the jobs", "H H * * *": "!H is Jenkins's",
		"H(0-29)/10 4 * * 1-5": "!H is Jenkins's", "0 0 $ * *": "!$ is pg_cron's; write L", "0 0 * * L5": "!write 5L",
		"0 0 * * FRI#L": "!write FRIL", "0 0 W15 * *": "!write 15W",
		// names and ranges
		"0 9 * * Monday": "!write MON", "0 0 1 January *": "!write JAN", "0 9 * * Tues,Thurs": "!write TUE",
		"0 22-6 * * *": "!write 22-23,0-6", "0 0 * * FRI-MON": "!write FRI-SAT,SUN-MON", "0 12 * * 6-0": "!write 6,0",
		// what stands around an expression
		"0 5 * * 1 /usr/bin/backup.sh": `a command does not belong here; write the five fields before it; use "0 5 * * 1"`,
		"0 5 * * * root /x -v":         `; use "0 5 * * *"`, "@daily /bin/x": `; use "@daily"`,
		"0 5 * * * curl -fsS https://example.com/ > /dev/null": `; use "0 5 * * *"`,
		"'0 5 * * *'": `leave the quotes out; use "0 5 * * *"`, `"0 5 * * *"`: `; use "0 5 * * *"`,
		"0 5 * * * # nightly":                 `leave the comment out; use "0 5 * * *"`,
		"CRON_TZ=Asia/Hong_Kong 30 8 * * *":   `; use {"cron":"30 8 * * *","timezone":"Asia/Hong_Kong"}`,
		"TZ=Nowhere 30 8 * * *":               "!use schedule.timezone",
		"0 9 * * * Europe/Berlin":             `; use {"cron":"0 9 * * *","timezone":"Europe/Berlin"}`,
		"0 5 * * * /bin/x 'Mon' # not a zone": `; use "0 5 * * *"`,
		"0 30 9 1 * Funday 2027":              "!days count from 1",
		"cron(15 10 ? * 6L 2024-2026)":        "!EventBridge's form, whose days count from 1, Sunday; a year field is not supported: starts_at",
		"cron(0 18 ? * MON-FRI *)":            `; use "0 18 * * MON-FRI"`,
		"cron(0 10 1 * 2 *)":                  "!EventBridge's form",
		"0 10 * * ? *":                        `; use "0 10 * * *"`,
		"rate(5 minutes)":                     `; use {"every":"5m"} in place of cron`,
		"rate(5)":                             "!it has 1 field",
		"every 1M":                            "!it has 2 fields",
		// words, systemd, GAE
		"daily": `; use "@daily"`, "Hourly": `; use "@hourly"`, "weekly": "!it has 1 field", "quarterly": `; use "0 0 1 1,4,7,10 *"`,
		"every day at 2am": `; use "0 2 * * *"`, "every monday 09:00": `; use "0 9 * * mon"`, "daily at 12:30 am": `; use "30 0 * * *"`,
		"every day at 12pm": `; use "0 12 * * *"`, "every day at 14pm": "!it has 4 fields", "every friday at 5:15pm": `; use "15 17 * * fri"`,
		"Mon..Fri 09:00": `; use "0 9 * * mon-fri"`, "*-*-* 03:00:00": `; use "0 3 * * *"`, "*-*-01 04:30": `; use "30 4 1 * *"`,
		"Mon *-*-1..7 09:00": "!it has 3 fields", "*:0/15": `; use "0/15 * * * *"`, "Sat,Sun *-*-* 08:00:30": `; use "30 0 8 * * sat,sun"`,
		"2027-*-* 09:00": "!it has 2 fields", "1:30": "!it has 1 field", "Mon..Fri 09:00 Europe/Berlin": `"timezone":"Europe/Berlin"`,
		// and what is right
		"0 9 * * mon-fri": "", "@daily": "", "0 0 */2 * 1": "", "0 9 * * 1-5": "",
	} {
		if text == "" {
			continue // an absent cron
		}
		var found []string
		for _, p := range (Schedule{Cron: text}).Validate() {
			found = append(found, p.Message)
		}
		got := strings.Join(found, "\n")
		silent := strings.HasPrefix(says, "!")
		if (got == "") != (says == "") || !strings.Contains(got, strings.TrimPrefix(says, "!")) {
			t.Errorf("%q:\n got %s\nwant %s", text, got, says)
		}
		if proposes := strings.Contains(got, "; use \"") || strings.Contains(got, "; use {"); proposes == silent && says != "" {
			t.Errorf("%q: proposes: %t: %s", text, proposes, got)
		}
		if strings.HasPrefix(text, "cron(") && len(found) != 1 || strings.Count(got, "expression: ") > 1 {
			t.Errorf("%q: several errors: %s", text, got)
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
