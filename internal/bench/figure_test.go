package bench

import (
	"encoding/json"
	"math"
	"testing"
)

// JSON has no NaN. A figure that cannot be written would cost the file with all others.
func TestAFigureIsWrittenWithoutTheRoundsThatWereNotMeasured(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, test := range []struct {
		name   string
		rounds []float64
		want   string
	}{
		{"all were", []float64{1, 3}, `{"benchmark":"burst","name":"a","unit":"×","value":2,"rounds":[1,3]}`},
		{"one was not", []float64{nan, 3}, `{"benchmark":"burst","name":"a","unit":"×","value":3,"rounds":[3]}`},
		{"none was", []float64{nan}, `{"benchmark":"burst","name":"a","unit":"×","absent":"could not be measured here"}`},
	} {
		l := &lab{name: "burst", db: &scratch{postmaster: 1}, report: &report{out: t.Output()}}
		l.cpuFigure("a", "×", nil, test.rounds...)
		if got, err := json.Marshal(l.report.Figures[0]); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v, want %s", test.name, got, err, test.want)
		}
	}
}

func TestAFigureSaysByHowMuchItMissesItsTarget(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		figure Figure
		want   string
	}{
		{"no target", Figure{Value: 7}, ""},
		{"at the lower bound", Figure{Value: 0.5, Target: atLeast(0.5)}, "reached"},
		{"below it", Figure{Value: 0.4, Target: atLeast(0.5)}, "missed by 20 %"},
		{"at the upper bound", Figure{Value: 60, Target: atMost(60)}, "reached"},
		{"above it", Figure{Value: 66, Target: atMost(60)}, "missed by 10 %"},
		{"far above it", Figure{Value: 150, Target: atMost(60)}, "missed, 2.50 times as much"},
		{"no longer was waited", Figure{Value: 300, Cap: 300, Target: atMost(20)}, "or more: no longer was waited"},
		{"within the time that was waited", Figure{Value: 12, Cap: 300, Target: atMost(20)}, "reached"},
		{"none allowed", Figure{Value: 1, Target: atMost(0)}, "missed"},
		{
			"out of sight",
			Figure{Value: math.NaN(), Target: atMost(60), Absent: "Postgres is elsewhere"},
			"Postgres is elsewhere",
		},
	} {
		if got := test.figure.verdict(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestQuantilesAreOfWhatWasMeasured(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, test := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 2, 3}, 0.5, 2.5},
		{[]float64{nan, 5, nan}, 0.5, 5},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.99, 10},
		{[]float64{1, 2}, 1, 2},
		{[]float64{nan}, 0.5, nan},
		{nil, 0.5, nan},
	} {
		if got := quantile(test.values, test.q); got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("quantile %g of %v is %g, want %g", test.q, test.values, got, test.want)
		}
	}
}
