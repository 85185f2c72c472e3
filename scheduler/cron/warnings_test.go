package cron

import (
	"strings"
	"testing"
)

func TestWarningsNameOtherReadings(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		"0 30 9 ? * 2-6":    `day of week "2-6" is Tue–Sat, as 1 is Monday`,
		"0 0 8 ? * 2#1":     `day of week "2#1" is the 1st Tue`,
		"0 9 ? * 1":         `day of week "1" is Mon`,
		"0 0 9 1-7 * MON":   "so either may match",
		"0 0 13 * fri":      "so either may match",
		"0 0 */2 * 1":       "must both match",
		"0 0 1 * */2":       "must both match",
		"0 9 * * 1-5":       "",
		"0 0 9 ? * MON-FRI": "",
		"0 0 9 ? * 1-7":     "",
		"0 0 9 * * */2":     "",
		"0 0 1-31 * 1":      "",
		"0 9 1 * ?":         "",
		"*/15 * * * * *":    "",
		"0 9 * * * 0":       `day of week "0" is Sun`,
		"5 9 * * * 0":       "the first of six fields is the second; in croniter the last one is",
	} {
		warnings, err := Warnings(expr, "Europe/Berlin")
		if got := strings.Join(warnings, "\n"); err != nil || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q (%v)", expr, got, want, err)
		}
	}
	for expr, want := range map[string]string{
		"0 9 * * *": "its hours are in UTC", "* * * * *": "", "@hourly": "", "@daily": "its hours are in UTC",
		"*/5 * * * 1-5": "its days are in UTC", "0 * 1 * *": "its days are in UTC", "* * * 7 *": "its days are in UTC",
	} {
		if warnings, _ := Warnings(expr, ""); !strings.HasPrefix(strings.Join(warnings, "\n"), want) || want == "" && warnings != nil {
			t.Errorf("%s without a zone: %q", expr, warnings)
		}
	}
	if _, err := Warnings("61 * * * *", ""); err == nil {
		t.Error("a mistake has warnings")
	}
}
