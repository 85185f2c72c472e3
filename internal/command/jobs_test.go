package command

import (
	"testing"
	"time"

	"punctual/httpapi"
	"punctual/store/runs"
)

func TestAResumeSaysHowToMakeUpForWhatPassed(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		hours int
		count *int
		want  string
	}{
		{2, new(3), "\n3 slots passed while it was paused (first 2026-11-25T00:00:00Z, last 2026-11-25T02:00:00Z); " +
			`to make up for them: POST /v1/jobs/a/backfill {"from":"2026-11-25T00:00:00Z","to":"2026-11-25T02:00:01Z"}`},
		{0, new(1), "\n1 slot passed while it was paused (2026-11-25T00:00:00Z); " +
			`to make up for them: POST /v1/jobs/a/backfill {"from":"2026-11-25T00:00:00Z","to":"2026-11-25T00:00:01Z"}`},
		{9, nil, "\nmore than 1,000 slots passed while it was paused (first 2026-11-25T00:00:00Z, " +
			"last 2026-11-25T09:00:00Z); to make up for them: POST /v1/jobs/a/backfill " +
			`{"from":"2026-11-25T00:00:00Z","to":"2026-11-25T09:00:01Z"}`},
	} {
		var job httpapi.Job
		job.Name = "a"
		job.SkippedWhilePaused = &runs.SkippedRange{
			First: first, Last: first.Add(time.Duration(test.hours) * time.Hour), Count: test.count,
		}
		if got := swallowed(job); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	if got := swallowed(httpapi.Job{}); got != "" {
		t.Errorf("nothing passed: %q", got)
	}
}
