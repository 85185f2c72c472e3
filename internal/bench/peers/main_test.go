package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheTableInTheDocumentIsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(figures)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	want, err := update(text, raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(text)); diff != "" {
		t.Errorf("make generate would write another table: %s", diff)
	}
	if n := strings.Count(string(text), "| – |"); n != 1 { // Punctual has no ratio to itself
		t.Errorf("%d figures of the table are missing, or have another name by now", n-1)
	}
}

func TestAFigureIsShort(t *testing.T) {
	t.Parallel()
	value := func(v float64) *float64 { return &v }
	for _, test := range []struct {
		figure figure
		ranged bool
		want   string
	}{
		{figure{Value: value(9_876.5), Rounds: []float64{9_876.5}}, true, "9,880"},
		{figure{Value: value(12_004), Rounds: []float64{9_000, 12_004, 13_500}}, true, "12,000 (9,000–13,500)"},
		{figure{Value: value(12_004), Rounds: []float64{9_000, 12_004, 13_500}}, false, "12,000"},
		{figure{Value: value(69.3), Rounds: []float64{69.3}}, true, "69"},
		{figure{Value: value(4.23), Rounds: []float64{4.23, 4.19}}, true, "4.2"},
		{figure{Value: value(0.586), Rounds: []float64{0.5, 0.586}}, true, "0.59 (0.50–0.59)"},
		{figure{Unit: "×", Value: value(1.288), Rounds: []float64{1.288, 1.5}}, true, "1.29 (1.29–1.50)"},
		{figure{Value: value(0), Rounds: []float64{0}}, true, "0"},
		{figure{Value: value(300), Rounds: []float64{31, 300, 300}, Cap: 300}, true, "> 300 (31–> 300)"},
	} {
		if got := test.figure.text(test.ranged); got != test.want {
			t.Errorf("%v: %q, want %q", test.figure.Rounds, got, test.want)
		}
	}
}

func TestADocumentWithoutAPlaceForTheTableIsAnError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", begin, end, end + begin} {
		if _, err := update([]byte(text), []byte(`{}`)); err == nil {
			t.Errorf("%q was updated", text)
		}
	}
}
