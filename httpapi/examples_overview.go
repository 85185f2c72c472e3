package httpapi

import (
	"time"

	"github.com/google/uuid"

	"punctual/scheduler/domain"
	"punctual/store/overview"
	"punctual/store/runs"
)

// Examples of the documentation: the overview, and the statistics of a job.
var (
	exampleOverview = Overview{Figures: overview.Figures{
		AsOf: at("2026-12-01T11:04:31.902Z"),
		Overdue: overview.Overdue{Slots: 1, Oldest: &overview.OldestDue{
			DueAt: at("2026-12-01T11:04:11.318Z"), JobID: exampleJobID, Job: "daily-invoice-gen",
		}},
		DeadLetters: overview.OpenLetters{Open: 2},
		Failing: overview.Failing{Count: 1, Jobs: []overview.FailingJob{{
			JobID: exampleJobID, Job: "daily-invoice-gen", State: domain.JobActive, Since: at("2026-11-30T11:00:00Z"),
			Failures: 2, Run: exampleRunID, Reason: new(domain.ReasonHTTP5xx), HTTPStatus: new(503),
			Error: new("the target answered 503"), Letters: 2, NextTryAt: new(at("2026-12-02T11:00:00.421Z")),
		}}},
		Day: exampleDay(),
	}}
	exampleStats = runs.JobStats{
		JobID: exampleJobID, Job: "daily-invoice-gen", From: at("2026-11-30T11:04:31.902Z"), Runs: 25, Complete: true,
		Outcomes: exampleOutcomes(24, 1, 0),
		Duration: runs.Percentiles{Runs: 25, P50: new(1.371), P95: new(4.208), Max: new(9.114)},
		Lateness: runs.Percentiles{Runs: 24, P50: new(0.002), P95: new(0.011), Max: new(0.024)},
	}
	exampleRecent = &runs.RecentRuns{
		Runs: []runs.RecentRun{
			{ID: exampleRunID, Status: domain.StatusSucceeded, ScheduledFor: at("2026-12-01T11:00:00Z")},
			{
				ID: uuid.MustParse("019ad43e-7e00-8c02-9b1f-70d1a3c2e5f6"), Status: domain.StatusDead,
				ScheduledFor: at("2026-11-30T11:00:00Z"),
			},
		},
		DurationP95: new(4.208),
	}
)

func exampleOutcomes(succeeded, dead, unended int64) runs.Outcomes {
	o := runs.Outcomes{Succeeded: succeeded, Dead: dead, Unended: unended}
	o.Rate()
	return o
}

// exampleDay is a day of even hours, but for the last one, which has just begun.
func exampleDay() overview.DayOfRuns {
	const hours = 24
	late := overview.Lateness{Runs: 600, P50: new(0.00218), P99: new(0.0247)}
	last := at("2026-12-01T11:00:00Z")
	day := overview.DayOfRuns{From: last.Add((1 - hours) * time.Hour), CountedAt: new(at("2026-12-01T11:04:02.117Z"))}
	for n := range hours {
		hour := overview.HourOfRuns{
			Hour: day.From.Add(time.Duration(n) * time.Hour), CountedAt: new(day.From.Add(time.Duration(n+2) * time.Hour)),
			Outcomes: exampleOutcomes(600, 0, 0), Lateness: late,
		}
		if n == hours-1 {
			hour.CountedAt, hour.Outcomes, hour.Lateness.Runs = day.CountedAt, exampleOutcomes(30, 2, 1), 33
		}
		day.Hours = append(day.Hours, hour)
	}
	day.Outcomes = exampleOutcomes(23*600+30, 2, 1)
	day.Lateness = overview.Lateness{Runs: 23*600 + 33, P50: late.P50, P99: late.P99}
	return day
}
