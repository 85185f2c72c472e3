package jobs_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	. "punctual/internal/storetest"
	"punctual/scheduler/jobspec"
	"punctual/store/jobs"
)

// A create does not read its answer back from the database. The answer must equal what a read returns a moment later.
func TestACreatedJobIsAsItIsReadBack(t *testing.T) {
	c := NewFixture(t)
	paused := true
	soon := time.Now().Add(time.Hour)
	for _, k := range []struct {
		name   string
		paused *bool
		change Option
	}{
		{"plain", nil, func(*jobspec.Definition) {}},
		{"paused", &paused, func(*jobspec.Definition) {}},
		{"without a schedule", nil, Never},
		{"of one shot, to the nanosecond", nil, At(soon.Add(123_456_789 * time.Nanosecond))},
		{"of one shot that is paused", &paused, At(soon)},
		{"delayed", nil, func(d *jobspec.Definition) {
			d.Schedule = jobspec.Schedule{Delay: jobspec.DurationOf(1234567891 * time.Nanosecond)}
		}},
		{
			"over before it began", nil,
			func(d *jobspec.Definition) { d.Schedule.EndsAt = jobspec.InstantOf(soon.Add(-2 * time.Hour)) },
		},
		{"with jitter", nil, func(d *jobspec.Definition) {
			d.Schedule = jobspec.Schedule{Cron: "0 3 * * *", Timezone: "America/Los_Angeles"}
			d.Jitter = jobspec.DurationOf(time.Minute + 7*time.Nanosecond)
		}},
		{"with everything else", nil, func(d *jobspec.Definition) {
			d.Labels = map[string]string{"team": "billing"}
			d.Target.Headers = map[string]string{"x-a": "<&>"}
			d.Target.Body = json.RawMessage(`{"b": 1.0,  "a":"<x> & \u0007"}`)
			d.ConcurrencyPolicy, d.Retry.GiveUpOn = jobspec.PolicyForbid, []int{}
			d.Notify = []jobspec.Notify{{On: []jobspec.Event{jobspec.EventDead}, URL: "https://example.com/pager"}}
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			job, err := c.For(c.Tenant).CreateJob(t.Context(), jobs.NewJob{Definition: Definition("job", k.change), Paused: k.paused})
			Must(t, err)
			read, err := c.Jobs.GetJob(t.Context(), c.Tenant, job.ID.String())
			if err != nil || !reflect.DeepEqual(job, read) {
				t.Errorf("error %v\ncreated %+v\nread    %+v", err, job, read)
			}
			Must(t, c.Jobs.DeleteJob(t.Context(), c.Tenant, job.ID.String(), nil, false))
		})
	}
}
