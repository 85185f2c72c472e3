package domain

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"
)

// kept reports whether the sampler of OpenTelemetry's SDK for Go keeps a trace. Those for Python and C++ are alike.
func kept(t *testing.T, trace string, ratio float64) bool {
	t.Helper()
	id, err := otel.TraceIDFromHex(trace)
	if err != nil {
		t.Fatalf("%q is no trace id: %v", trace, err)
	}
	return sdk.TraceIDRatioBased(ratio).ShouldSample(sdk.SamplingParameters{TraceID: id}).Decision == sdk.RecordAndSample
}

// keptByXor is the sampler of the SDK for JavaScript.
func keptByXor(t *testing.T, trace string, ratio float64) bool {
	t.Helper()
	raw, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	var sum uint32
	for ; len(raw) > 0; raw = raw[4:] {
		sum ^= binary.BigEndian.Uint32(raw)
	}
	return float64(sum) < ratio*math.MaxUint32
}

// Targets sample by bits of the trace id. Runs of one job, every second, must not all be kept, or none of them.
func TestSamplersKeepTheirShareOfRuns(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for name, id := range map[string]func(time.Time) uuid.UUID{
		"slots":   func(at time.Time) uuid.UUID { return SlotRunID(jobID, at) },
		"by hand": NewRunID,
	} {
		for _, ratio := range []float64{0.5, 0.1, 0.01} {
			runs := 20_000
			if ratio == 0.1 {
				runs = 100_000
			}
			origin, low, xor := Origin{TraceRatio: ratio}, 0.0, 0.0
			for n := range runs {
				a := Assignment{RunID: id(begin.Add(time.Duration(n) * time.Second)), Fence: int64(n)}
				header := a.traceparent(origin)
				keeps := kept(t, header[3:35], ratio)
				if keeps {
					low++
				}
				if keptByXor(t, header[3:35], ratio) {
					xor++
				}
				if flag := header[52:]; (flag == "-01") != keeps || (flag == "-00") == keeps {
					t.Fatalf("%s, ratio %g: %s; the sampler keeps it: %t", name, ratio, header, keeps)
				}
				a.Fence++
				if again := a.traceparent(origin); again[:35] != header[:35] || again[52:] != header[52:] {
					t.Fatalf("%s: two attempts of a run have %s and %s", name, header, again)
				}
			}
			// Five standard deviations.
			want, slack := ratio*float64(runs), 5*math.Sqrt(float64(runs)*ratio*(1-ratio))
			if math.Abs(low-want) > slack || math.Abs(xor-want) > slack {
				t.Errorf("%s, ratio %g: of %d runs, samplers keep %g and %g; want %g", name, ratio, runs, low, xor, want)
			}
		}
	}
}

func TestAllOrNoRunsAreFlagged(t *testing.T) {
	t.Parallel()
	for n := range 1000 {
		a := Assignment{RunID: SlotRunID(jobID, time.Unix(int64(n), 0))}
		all, none := a.traceparent(Origin{TraceRatio: 1}), a.traceparent(Origin{})
		if all[52:] != "-01" || none[52:] != "-00" || all[:52] != none[:52] {
			t.Fatalf("with ratio 1 %s, with ratio 0 %s", all, none)
		}
	}
}

func TestTraceparentNamesTheRunAndTheAttempt(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-01$`)
	parents, all := map[string]bool{}, Origin{TraceRatio: 1}
	for fence := range int64(100) {
		a := Assignment{RunID: uuid.MustParse(runID), Job: compiled(t, `{}`), Fence: fence}
		header := ""
		for _, h := range a.Request(all).Extra {
			if h.Name == "Traceparent" {
				header = h.Value
			}
		}
		match := form.FindStringSubmatch(header)
		if match == nil || match[1] != TraceID(a.RunID, "") || match[1] == strings.Repeat("0", 32) ||
			match[2] == strings.Repeat("0", 16) || parents[match[2]] {
			t.Fatalf("attempt %d: %q", fence, header)
		}
		if parents[match[2]] = true; a.traceparent(all) != header {
			t.Errorf("attempt %d: made again it is %q, was %q", fence, a.traceparent(all), header)
		}
	}
	other := Assignment{RunID: uuid.MustParse("01a128e7-2780-8804-a169-8fb691c134cc")}
	if TraceID(other.RunID, "") == TraceID(uuid.MustParse(runID), "") || parents[other.traceparent(all)[36:52]] {
		t.Error("two runs share a trace, or two of their attempts a parent")
	}
}

func TestTheTraceOfACallerIsContinuedIfItIsValid(t *testing.T) {
	t.Parallel()
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for header, want := range map[string]string{
		"00-" + trace + "-" + span + "-01":                    "-01",
		"00-" + trace + "-" + span + "-00":                    "-00",
		"00-" + trace + "-" + span + "-03":                    "-01", // sampled, and random
		"00-" + trace + "-" + span + "-02":                    "-00",
		"cc-" + trace + "-" + span + "-0f-new":                "-01",
		"ff-" + trace + "-" + span + "-01":                    "",
		"00-" + trace + "-" + span + "-01-new":                "",
		"cc-" + trace + "-" + span + "-01.new":                "",
		"00-" + trace + "-" + span:                            "",
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":   "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":  "",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01": "",
		"": "",
	} {
		parent := ParseTraceParent(header)
		a := Assignment{RunID: uuid.MustParse(runID), TraceParent: parent}
		continues := a.traceparent(Origin{TraceRatio: 1})[3:35] == trace
		if want == "" && (parent != "" || continues) ||
			want != "" && (parent != "00-"+trace+"-"+span+want || !continues || a.traceparent(Origin{})[52:] != want) {
			t.Errorf("%q: %q, and the run sends %q", header, parent, a.traceparent(Origin{}))
		}
	}
}
