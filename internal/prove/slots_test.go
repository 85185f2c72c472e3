//prove:other

package prove

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
)

// The checker's own reading of plain cron agrees with the product's.
func TestPlainCronAgreesWithTheProduct(t *testing.T) {
	t.Parallel()
	from := time.Date(2027, 12, 30, 22, 58, 30, 0, time.UTC)
	for _, expression := range []string{
		"* * * * * *", "*/7 * * * * *", "5,10-20/5 * * * * *", "* * * * *", "*/15 9-17 * * 1-5", "0 0 29 2 *",
		"30 4 1,15 * 5", "0 0 */2 * 1", "59 23 31 12 *", "3/20 * * * *",
	} {
		d := jobspec.Definition{Schedule: jobspec.Schedule{Cron: expression}}.WithDefaults()
		plain, ok := parsePlainCron(d.Schedule)
		if !ok {
			t.Errorf("%s is not plain", expression)
			continue
		}
		timetable, err := jobspec.NewTimetable(uuid.New(), d, 0)
		must(t, err)
		var want, got []time.Time
		to := from.Add(72 * time.Hour)
		if plain.step == time.Second {
			to = from.Add(time.Hour)
		}
		for at := from; ; {
			slot, ok := timetable.Next(at, nil)
			if !ok || slot.At.After(to) {
				break
			}
			want, at = append(want, slot.At.UTC()), slot.At
		}
		for at := from.Add(plain.step).Truncate(plain.step); !at.After(to); at = at.Add(plain.step) {
			if plain.matches(at) {
				got = append(got, at)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-product +plain)\n%s", expression, diff)
		}
	}
}

// It leaves other cron expressions to the product.
func TestPlainCronLeavesTheRest(t *testing.T) {
	t.Parallel()
	for _, s := range []jobspec.Schedule{
		{Cron: "0 0 L * *"},
		{Cron: "0 0 * * mon"},
		{Cron: "0 0 * * 1#2"},
		{Cron: "@daily"},
		{Cron: "0 0 15W * *"},
		{Cron: "0 0 * * 7"},
		{Cron: "0 0 * * *", Timezone: "Europe/Berlin"},
	} {
		if _, ok := parsePlainCron(s); ok {
			t.Errorf("%+v is taken for plain", s)
		}
	}
}

// The checker computes the slots that definitions ask for.
func TestSlotsAreThoseOfTheDefinitions(t *testing.T) {
	t.Parallel()
	every := func(d time.Duration) jobspec.Definition {
		return jobspec.Definition{Schedule: jobspec.Schedule{Every: jobspec.DurationOf(d)}}
	}
	aligned := every(2 * time.Second)
	aligned.Schedule.StartsAt, aligned.Schedule.EndsAt = jobspec.InstantOf(at(1)), jobspec.InstantOf(at(5))
	one := jobspec.Definition{Schedule: jobspec.Schedule{At: jobspec.InstantOf(at(3))}}
	delay := jobspec.Definition{Schedule: jobspec.Schedule{Delay: jobspec.DurationOf(2 * time.Second)}}
	note := delay
	note.Description = "rewritten"
	for _, test := range []struct {
		name     string
		versions []Version
		want     []float64
	}{
		{
			"a period aligned to the epoch", []Version{{at(-0.5), "active", every(2 * time.Second), nil}}, []float64{0, 2, 4, 6},
		},
		{"a period aligned to its start, with an end", []Version{{at(-0.5), "active", aligned, nil}}, []float64{1, 3, 5}},
		{"a one-shot", []Version{{at(0), "active", one, nil}}, []float64{3}},
		{"a one-shot of the past keeps its instant", []Version{{at(4.0001), "active", one, nil}}, []float64{3}},
		{"a delay", []Version{{at(0.0001), "active", delay, nil}}, []float64{2.001}},
		{
			"a delay rewritten before it was due",
			[]Version{{at(0), "active", delay, nil}, {at(1), "active", note, nil}},
			[]float64{3},
		},
		{
			"a delay paused and resumed",
			[]Version{{at(0), "active", delay, nil}, {at(1), "paused", delay, nil}, {at(5), "active", delay, nil}},
			[]float64{2},
		},
		{
			"an edit of the schedule",
			[]Version{{at(-0.5), "active", every(2 * time.Second), nil}, {at(2.5), "active", every(3 * time.Second), nil}},
			[]float64{0, 2, 3, 6},
		},
		{
			"an edit of anything else",
			[]Version{{at(-0.5), "active", every(2 * time.Second), nil}, {at(2.5), "active", every(2 * time.Second), nil}},
			[]float64{0, 2, 4, 6},
		},
		{
			"a deletion",
			[]Version{{at(-0.5), "active", every(2 * time.Second), nil}, {at(2.5), "deleted", every(2 * time.Second), nil}},
			[]float64{0, 2},
		},
		{"no schedule", []Version{{at(0), "active", jobspec.Definition{}, nil}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			slots, err := dueSlots(Job{ID: uuid.New(), Versions: test.versions}, at(6.5), 0)
			must(t, err)
			var got []float64
			for _, s := range slots {
				got = append(got, s.At.Sub(t0).Seconds())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
