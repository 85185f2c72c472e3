package jobspec

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestAOneShotByLocalTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"at":"2027-01-01T09:00:00","timezone":"Europe/Berlin"}`:      "2027-01-01T08:00:00Z",
		`{"at":"2027-07-01t09:00:00.0005","timezone":"Europe/Berlin"}`: "2027-07-01T07:00:00.001Z",
		`{"at":"2027-03-28T02:30:00","timezone":"Europe/Berlin"}`:      "2027-03-28T01:30:00Z 02:30 does not exist",
		`{"at":"2027-10-31T02:30:00","timezone":"Europe/Berlin"}`:      "2027-10-31T00:30:00Z 02:30 occurs twice",
		`{"at":"2027-01-01T09:00:00Z"}`:                                "2027-01-01T09:00:00Z",
	} {
		var s Schedule
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if problems := s.Validate(); len(problems) > 0 {
			t.Errorf("%s: %v", text, problems)
			continue
		}
		timetable, err := NewTimetable(uuid.Nil, Definition{Schedule: s}, 0)
		if err != nil {
			t.Fatal(err)
		}
		slot, _ := timetable.First(time.Time{})
		got := slot.At.Format(time.RFC3339Nano) + " " + slot.Note
		if !strings.HasPrefix(got, want) || !strings.Contains(want, " ") && slot.Note != "" {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if s.Timezone != "" && timetable.zone.String() != s.Timezone {
			t.Errorf("%s: zone %v", text, timetable.zone)
		}
		other := s
		if other.Timezone = "Asia/Tokyo"; SameSchedule(s, other) || !SameSchedule(s, s) {
			t.Errorf("%s: the zone does not tell schedules apart", text)
		}
	}
	for text, says := range map[string]string{
		`{"at":"2027-01-01T09:00:00"}`:                             "has no offset from UTC (only schedule.at with a timezone",
		`{"at":"2027-01-01T09:00:00Z","timezone":"Europe/Berlin"}`: "schedule.at has an offset; leave one of the two out",
		`{"at":"2027-01-01T09:00:00","timezone":"Europe/Belrin"}`:  "did you mean",
		`{"at":"2027-02-29T09:00:00","timezone":"Europe/Berlin"}`:  "February 2027 has 28 days",
		`{"at":"2227-01-01T09:00:00","timezone":"Europe/Berlin"}`:  "outside the years",
		`{"delay":"5m","timezone":"Europe/Berlin"}`:                "only cron and at schedules have a zone",
		`{"every":"5m","starts_at":"2027-01-01T09:00:00"}`:         "has no offset",
	} {
		var s Schedule
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if problems := s.Validate(); len(problems) != 1 || !strings.Contains(problems[0].Message, says) {
			t.Errorf("%s: %v, want %s", text, problems, says)
		}
	}
}
