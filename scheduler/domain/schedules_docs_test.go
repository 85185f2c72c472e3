package domain

import (
	"os"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

const schedulesPage = "../../docs/schedules.md"

func TestTheExpressionsOfTheDocsFireAsTheySay(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(schedulesPage)
	must(t, err)
	rows := table(string(page), "Cron expressions")
	if len(rows) < 10 {
		t.Errorf("%d expressions", len(rows))
	}
	for _, row := range rows {
		if words, err := cron.Words(strings.Trim(row[0], "`")); err != nil || words != row[1] {
			t.Errorf("%s fires %s, and not %s: %v", row[0], words, row[1], err)
		}
	}
}

// An outage from 02:55 to 03:20 ends under each policy as the table says, for both of its jobs.
func TestTheOutageOfTheDocsEndsAsTheySay(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(schedulesPage)
	must(t, err)
	jobs := []struct{ cron, inTime string }{{"0 3 * * *", ""}, {"*/10 * * * *", "03:20"}}
	if head := "\n| policy | `" + jobs[0].cron + "` | `" + jobs[1].cron + "` |\n"; !strings.Contains(string(page), head) {
		t.Fatalf("there is no table with the head %s", head)
	}
	rows := table(string(page), "Missed slots")
	if len(rows) != 3 {
		t.Errorf("%d policies", len(rows))
	}
	for _, row := range rows {
		policy, note, _ := strings.Cut(strings.TrimPrefix(row[0], "`"), "`")
		if isDefault := jobspec.MissedPolicy(policy) == jobspec.MissedFireOnce; isDefault != (note != "") {
			t.Errorf("%s is the default: %v", policy, !isDefault)
		}
		for i, j := range jobs {
			job := compiled(t, `{"schedule":{"cron":"`+j.cron+`"},"jitter":"0s","missed":{"policy":"`+policy+`"}}`)
			said, inTime := afterOutage(job, instant(t, "02:55"), instant(t, "03:20:00.1"))
			if said != row[i+1] || inTime != j.inTime {
				t.Errorf("%s, %s: %s, and in time %q; the page says: %s", policy, j.cron, said, inTime, row[i+1])
			}
		}
	}
}

// afterOutage claims what was due in an outage, and says what becomes of the slots that were missed, and which slots
// are in time.
func afterOutage(job *Job, from, to time.Time) (said, inTime string) {
	var skipped, late, others []string
	for slot, ok := job.Timetable.Next(from.Add(-1), nil); ok && !slot.At.After(to); {
		p := Decide(Situation{Job: job, ScheduledFor: slot.At, Now: to})
		for _, s := range p.Skips {
			for at := s.First; !at.After(s.Last); {
				skipped = append(skipped, at.Format("15:04"))
				next, _ := job.Timetable.Next(at, nil)
				at = next.At
			}
		}
		for _, r := range p.Runs {
			if r.Late {
				late = append(late, r.ScheduledFor.Format("15:04"))
			} else {
				others = append(others, r.ScheduledFor.Format("15:04"))
			}
		}
		slot.At, ok = p.Next, !p.Done
	}
	var parts []string
	if len(skipped) > 0 {
		parts = append(parts, strings.Join(skipped, " and ")+verb(skipped, " is skipped", " are skipped"))
	}
	if len(late) > 0 {
		parts = append(parts, strings.Join(late, " and ")+verb(late, " runs, late", " run, late"))
	}
	return strings.Join(parts, "; "), strings.Join(others, " and ")
}

func verb(subjects []string, one, many string) string {
	if len(subjects) == 1 {
		return one
	}
	return many
}
