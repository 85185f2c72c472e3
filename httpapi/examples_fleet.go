package httpapi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"punctual/httpapi/auth"
	"punctual/scheduler"
	"punctual/scheduler/admit"
	"punctual/scheduler/domain"
	"punctual/store/fleet"
	"punctual/store/freeze"
	"punctual/store/limits"
	"punctual/store/overview"
	"punctual/store/runs"
)

// Examples of the documentation: queues and replicas.
var (
	exampleQueues = QueueList{
		Data: []fleet.Queue{
			{Name: "critical"},
			{
				Name: "default", DueSlots: 204, DueRuns: 3, LaterRuns: 12, InFlight: 100,
				OldestDue: new(moment("2026-12-01T11:00:00Z")),
			},
		},
		HeldBack: &fleet.HeldBack{
			Limit: admit.LimitConcurrent, Most: 100, Since: moment("2026-12-01T11:00:00.204Z"),
			Reason: "the tenant is at max_concurrent_runs (100)",
		},
	}
	exampleReplicas = ReplicaList{Data: []fleet.Replica{{
		ID: uuid.MustParse("5b0b8a52-3f0e-4c67-9d35-9d7f3f7a2c11"), Host: "punctual-7c9f", Version: "1.4.0",
		Queues: map[string]int{"default": 500, "critical": 100}, StartedAt: moment("2026-11-30T08:14:09.117Z"),
		RenewedAt: moment("2026-12-01T11:04:31.902Z"),
	}}}
)

var exampleLimit = limits.Limit{
	Name: "warehouse", Settings: limits.Settings{MaxRunning: new(1), MaxStartsPerSecond: new(5)},
	Running: 1, Waiting: 3, Jobs: 2,
	HeldBy: []limits.Holder{{
		Run: uuid.MustParse("019ad964-3b80-8b21-8f6e-1d2c3b4a5968"), Job: "daily-invoice-gen",
		Since: moment("2026-12-01T11:00:00.204Z"),
	}},
	CreatedAt: moment("2026-11-02T09:20:41.5Z"), UpdatedAt: moment("2026-11-28T18:00:00.5Z"),
}

var exampleBreakersReset = json.RawMessage(`{"host":"billing.internal:443"}`)

var exampleBreakers = BreakerList{Data: []fleet.Breaker{{
	HeldBy: "breaker billing.internal:443", State: admit.HoldOpen, Host: "billing.internal:443",
	Since: moment("2026-12-01T11:00:41.310Z"), Failures: 14, LastError: "connection refused",
	NextProbeAt: new(moment("2026-12-01T11:04:40.118Z")), Replicas: 3, WaitingRuns: 40,
	WaitingSince: new(moment("2026-12-01T11:00:42.007Z")),
}, {
	HeldBy: "hanging reports.internal:443/yearly", State: admit.HoldHanging, Host: "reports.internal:443",
	Path: "/yearly", Since: moment("2026-12-01T10:52:00.550Z"), Failures: 9, LastError: "9 timeouts in a row", Replicas: 1,
}}}

// Examples of the documentation: freezes.
var (
	exampleFreeze   = json.RawMessage(`{"scope":"tenant","note":"the warehouse moves"}`)
	exampleUnfreeze = json.RawMessage(`{"scope":"tenant"}`)
	exampleFrozen   = showFreezeState(freeze.State{
		Tenant: &scheduler.Freeze{
			Since: moment("2026-12-01T11:00:00.204Z"), By: "key deploy (019ada51-20c4-7f0a-8b5d-3c1f9a7e6d42)",
			Note: "the warehouse moves", Reason: scheduler.FrozenAsked,
		}, InFlight: 12,
	}, auth.RoleAdmin)
)

// Example of the documentation: a forecast.
var exampleForecast = Forecast{
	AsOf: moment("2026-12-01T10:59:41.207Z"), Scope: ScopeTenant, From: moment("2026-12-01T11:00:00Z"),
	To: moment("2026-12-01T15:00:00Z"), Step: "1h", Jobs: 60201, Total: 61044,
	Slots: []int{60180, 288, 288, 288}, Starts: []float64{60180, 288, 288, 288},
	Busiest: []BusyStep{{
		At: moment("2026-12-01T11:00:00Z"), Slots: 60180, Starts: 60180, Jobs: 60113,
		Most: []BusyJob{
			{ID: exampleJobID, Name: "daily-invoice-gen", Tenant: "default", Starts: 1},
		},
	}},
	Spread: []Spread{
		{At: moment("2026-12-01T11:00:00Z"), Starts: 60180},
		{Jitter: new("1m"), At: moment("2026-12-01T11:00:00Z"), Starts: 60180},
	},
}

var exampleUsage = List[overview.Usage]{Data: []overview.Usage{{
	Day: "2026-12-01", JobID: &exampleJobID, Job: new("daily-invoice-gen"), Runs: 24, Attempts: 26, Seconds: 71.204,
	Bytes: 1840, CountedAt: moment("2026-12-01T12:00:04.118Z"),
}}}

// Examples of the documentation: the overview, and the statistics of a job.
var (
	exampleOverview = Overview{Figures: overview.Figures{
		AsOf: moment("2026-12-01T11:04:31.902Z"),
		Overdue: overview.Overdue{Slots: 1, Jobs: 1, Oldest: &overview.OldestDue{
			DueAt: moment("2026-12-01T11:04:11.318Z"), JobID: exampleJobID, Job: "daily-invoice-gen",
		}},
		DeadLetters: overview.OpenLetters{Open: 2},
		Failing: overview.Failing{Count: 1, Jobs: []overview.FailingJob{{
			JobID: exampleJobID, Job: "daily-invoice-gen", State: domain.JobActive, Since: moment("2026-11-30T11:00:00Z"),
			Failures: 2, Run: exampleRunID, Reason: new(domain.ReasonHTTP5xx), HTTPStatus: new(503),
			Error: new("the target answered 503: try again later"), Letters: 2,
			NextTryAt: new(moment("2026-12-02T11:00:00.421Z")),
		}}},
		Day: exampleDay(),
	}}
	exampleStats = runs.JobStats{
		JobID: exampleJobID, Job: "daily-invoice-gen", From: moment("2026-11-30T11:04:31.902Z"), Runs: 25, Complete: true,
		Outcomes: exampleOutcomes(24, 1, 0),
		Duration: runs.Percentiles{Runs: 25, P50: new(1.371), P95: new(4.208), Max: new(9.114)},
		Lateness: runs.Percentiles{Runs: 24, P50: new(0.002), P95: new(0.011), Max: new(0.024)},
	}
	exampleRecent = &runs.RecentRuns{
		Runs: []runs.RecentRun{
			{ID: exampleRunID, Status: domain.StatusSucceeded, ScheduledFor: moment("2026-12-01T11:00:00Z")},
			{
				ID: uuid.MustParse("019ad43e-7e00-8c02-9b1f-70d1a3c2e5f6"), Status: domain.StatusDead,
				ScheduledFor: moment("2026-11-30T11:00:00Z"),
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
	last := moment("2026-12-01T11:00:00Z")
	day := overview.DayOfRuns{From: last.Add((1 - hours) * time.Hour), CountedAt: new(moment("2026-12-01T11:04:02.117Z"))}
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
