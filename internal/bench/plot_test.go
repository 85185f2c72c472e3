package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var sample = plot{Title: `Jobs at rest: "a" < b & c`, Charts: []chart{
	{
		X: axis{Label: "jobs stored", Log: true}, Y: axis{Label: "CPU µs per fire"},
		Series: []series{
			{Name: "Postgres <1>", Points: []point{{1e4, 60}, {1e6, 66}, {1e7, 71}}},
			{Name: "at most", Limit: true, Points: []point{{1e4, 78}, {1e7, 78}}},
		},
	},
	{
		X:      axis{Label: "jobs stored", Log: true},
		Y:      axis{Label: "runs/s", Log: true},
		Series: []series{{Name: "runs/s", Points: []point{{1e4, 8000}, {1e6, 0}, {1e7, 7000}}}},
	},
}}

func TestPlotIsValidAndAlwaysTheSame(t *testing.T) {
	t.Parallel()
	first := sample.svg()
	if !bytes.Equal(first, sample.svg()) {
		t.Error("the same plot gave other bytes")
	}
	for name, p := range map[string]plot{
		"sample":    sample,
		"no chart":  {},
		"no points": {Charts: []chart{{Series: []series{{Name: "none"}}}}},
		"zeros":     {Charts: []chart{{Series: []series{{Points: []point{{}}}}}}},
	} {
		text, circles := parsed(t, p.svg())
		if name != "sample" {
			continue
		}
		for _, want := range []string{
			sample.Title, "CPU µs per fire", "jobs stored", "Postgres <1>", "at most", "10 k", "10 M",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in the plot: %q", want, text)
			}
		}
		// Three measured points and none of the limit; one of the other three has no place on a logarithmic axis.
		if circles != 5 {
			t.Errorf("%d marks, want 5", circles)
		}
	}
}

// parsed reads XML to its end, and returns its text and the number of its circles. It fails if a number is unusable.
func parsed(t *testing.T, svg []byte) (text string, circles int) {
	t.Helper()
	if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
		t.Errorf("a coordinate is no number: %s", svg)
	}
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	var b strings.Builder
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return b.String(), circles
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.CharData:
			b.Write(token)
		case xml.StartElement:
			if token.Name.Local == "circle" {
				circles++
			}
		}
	}
}

func TestScalesPlaceNumbers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		axis   axis
		values []float64
		ticks  []float64
		middle float64 // the number at the middle of the axis
	}{
		"linear from zero":    {axis{}, []float64{60, 71}, []float64{0, 20, 40, 60, 80}, 40},
		"linear of fractions": {axis{}, []float64{0.31}, []float64{0, 0.1, 0.2, 0.30000000000000004, 0.4}, 0.2},
		"linear of nothing":   {axis{}, []float64{0}, []float64{0, 1}, 0.5},
		"log from power to power": {
			axis{Log: true}, []float64{20, 7000}, []float64{10, 100, 1000, 10000}, 316.22776601683796,
		},
		"log of a power": {axis{Log: true}, []float64{100}, []float64{100, 1000}, 316.22776601683796},
		"log at its points": {
			axis{Log: true, AtPoints: true}, []float64{1, 8, 2, 4, 2}, []float64{1, 2, 4, 8}, 2.8284271247461903,
		},
		"log leaves out zero":       {axis{Log: true}, []float64{0, 1, 100}, []float64{1, 10, 100}, 10},
		"what is no number is not ": {axis{}, []float64{math.NaN(), 4, math.Inf(1)}, []float64{0, 1, 2, 3, 4}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := test.axis.scale(test.values, 0, 100)
			if diff := cmp.Diff(test.ticks, s.ticks); diff != "" {
				t.Error(diff)
			}
			if got := s.at(test.middle); math.Abs(got-50) > 1e-9 {
				t.Errorf("%v is at %v, want 50", test.middle, got)
			}
		})
	}
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.25: "0.25", 999: "999", 10_000: "10 k", 2_500_000: "2.5 M", 1e9: "1 G", 61.23456: "61.23",
	} {
		if got := short(v); got != want {
			t.Errorf("short(%v) is %q, want %q", v, got, want)
		}
	}
}

// WCAG 2.2 demands a contrast of 3 for parts of a picture that are needed to understand it. The colours are chosen for
// both backgrounds.
func TestColoursAreSeenOnLightAndDark(t *testing.T) {
	t.Parallel()
	for _, colour := range append([]string{neutral}, palette...) {
		for _, background := range []string{"#ffffff", "#000000", "#0d1117"} {
			if c := contrast(t, colour, background); c < 3 {
				t.Errorf("%s on %s has a contrast of %.2f, want 3 at least", colour, background, c)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		must(t, err)
		c := float64(n) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
		} else {
			sum += weight * math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return sum
}

func TestPowersEndWithTheMost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		least, most, times int
		want               []int
	}{
		{1, 8, 2, []int{1, 2, 4, 8}},
		{10_000, 10_000_000, 100, []int{10_000, 1_000_000, 10_000_000}},
		{1, 1, 10, []int{1}},
		{50, 10, 2, []int{10}},
	} {
		if diff := cmp.Diff(test.want, powers(test.least, test.most, test.times)); diff != "" {
			t.Error(diff)
		}
	}
}
