package cron

import (
	"strings"
	"testing"
)

func TestWordsSayWhenItFires(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 3 * * mon-fri":         "Mon–Fri 03:00",
		"0 3 * * *":               "daily 03:00",
		"@daily":                  "daily 00:00",
		"@hourly":                 "every hour at minute 0",
		"@weekly":                 "Sun 00:00",
		"@monthly":                "on the 1st 00:00",
		"@yearly":                 "on the 1st in Jan 00:00",
		"* * * * *":               "every minute",
		"*/15 * * * *":            "every 15 min",
		"*/30 * * * *":            "every 30 min",
		"5,35 * * * *":            "every hour at minute 5, 35",
		"*/7 * * * *":             "every hour at minute 0, 7, 14, 21, 28, 35, 42, 49, 56",
		"*/10 * * * * *":          "every 10 s",
		"* * * * * *":             "every second",
		"30 * * * * *":            "every minute at second 30",
		"0 */2 * * *":             "every 2 h at minute 0",
		"0 9,13,17 * * 1-5":       "Mon–Fri 09:00, 13:00, 17:00",
		"*/5 8-17 * * mon-fri":    "every 5 min, 08:00–17:59, Mon–Fri",
		"* 8-9,20 * * *":          "every minute, 08:00–09:59, 20:00–20:59",
		"15 30 6 * * *":           "daily 06:30:15",
		"0 0 1,15 * *":            "on the 1st, the 15th 00:00",
		"0 0 2-4,22 * *":          "on the 2nd–4th, the 22nd 00:00",
		"0 0 L * *":               "on the last day of the month 00:00",
		"0 0 LW * *":              "on the last weekday of the month 00:00",
		"0 0 L-1 * *":             "on the day before the last of the month 00:00",
		"0 9 L-2,1 mar *":         "on the 1st, the day 2 days before the last of the month in Mar 09:00",
		"0 0 15W * *":             "on the weekday nearest the 15th 00:00",
		"0 0 * * fri#2":           "on the 2nd Fri 00:00",
		"0 0 * * 5L":              "on the last Fri 00:00",
		"0 0 13 * fri":            "on the 13th or Fri 00:00",
		"0 0 1-31/2 * *":          "on days 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 00:00",
		"0 0 1 jan,jul *":         "on the 1st in Jan, Jul 00:00",
		"0 4 * 6-8 *":             "daily in Jun–Aug 04:00",
		"0 4 * * sat,sun":         "Sat, Sun 04:00",
		"0 4 * * mon,wed-fri":     "Mon, Wed–Fri 04:00",
		"*/10 9 * * *":            "daily 09:00, 09:10, 09:20, 09:30, 09:40, 09:50",
		"*/5 9 * * *":             "every 5 min, 09:00–09:59",
		"1,2,4,8 1-5 * * *":       "every hour at minute 1, 2, 4, 8, 01:00–05:59",
		"30 */7 * * *":            "daily 00:30, 07:30, 14:30, 21:30",
		"0 1,2,3,5,8,13,21 * * *": "daily 01:00, 02:00, 03:00, 05:00, 08:00, 13:00, 21:00",
	} {
		got, err := Words(expr)
		if err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", expr, got, want, err)
		}
	}
	if _, err := Words("61 * * * *"); err == nil {
		t.Error("a mistake has words")
	}
}

// Whatever an expression says, its words are found, and are no longer than a list of all it selects.
func FuzzWords(f *testing.F) {
	for _, seed := range []string{"*/7 1-5 L,15W jan fri#2,5L", "0-59/9 */5 * * *", "1 2 3 4 5 6"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if _, err := Parse(expr); err != nil {
			return
		}
		words, err := Words(expr)
		if err != nil || words == "" || strings.Contains(words, "  ") || strings.HasPrefix(words, " ") {
			t.Errorf("%q: %q, %v", expr, words, err)
		}
	})
}
