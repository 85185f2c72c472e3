package domain

import (
	"encoding/binary"
	"encoding/hex"
	"regexp"

	"github.com/google/uuid"
)

// Origin is what a deployment tells targets of itself. All its replicas must tell the same.
type Origin struct {
	PublicURL string // where targets reach the API, without a trailing slash
	// TraceRatio is the share of runs whose requests are flagged as sampled, from 0 to 1.
	TraceRatio float64
}

// samples decides about a trace as the sampler TraceIDRatioBased of OpenTelemetry does. So all attempts and replicas
// agree, and so does a target with that sampler and the same ratio.
func (o Origin) samples(trace []byte) bool {
	return binary.BigEndian.Uint64(trace[8:16])>>1 < uint64(o.TraceRatio*(1<<63))
}

// Trace is the trace that a run is part of. Its ids are derived, so that each replica can add to it without another's
// memory.
type Trace struct {
	ID      [16]byte
	Root    [8]byte // span of the run: parent of all others of the run
	Parent  [8]byte // span of the request that triggered the run, and whose trace it is; zero: the trace is the run's own
	Sampled bool
}

// Trace returns the trace of a run: that of the request that triggered it, with the decision of that request, or else
// one of its own. traceParent is the trace context of that request; empty: there is none.
func (o Origin) Trace(run uuid.UUID, traceParent string) Trace {
	own := hashOf(run, notAnAttempt)
	t := Trace{ID: [16]byte(own[:16]), Root: spanID(own[16:24])}
	if traceParent == "" {
		t.Sampled = o.samples(t.ID[:])
		return t
	}
	caller := ReadTraceParent(traceParent)
	t.ID, t.Parent, t.Sampled = caller.ID, caller.Root, caller.Sampled
	return t
}

// notAnAttempt is in place of a fencing token, so that the hash for a run's trace is no attempt's.
const notAnAttempt = -1

// Spans are the ids of the spans of an attempt. They are hashes of the run and the fencing token, which no two attempts
// share.
type Spans struct {
	Attempt [8]byte // of its request: the parent that targets are told
	Wait    [8]byte // from when the run was due until the request was sent
	Work    [8]byte // what the target did after it had answered 202
}

// SpansOf returns the ids of the spans of an attempt.
func SpansOf(run uuid.UUID, fence int64) Spans {
	sum := hashOf(run, fence)
	return Spans{spanID(sum[:8]), spanID(sum[8:16]), spanID(sum[16:24])}
}

// spanID returns 8 bytes as the id of a span. Zero would mean that there is none.
func spanID(bytes []byte) [8]byte {
	id := [8]byte(bytes)
	if id == ([8]byte{}) {
		id[7] = 1
	}
	return id
}

// TraceID returns the trace id of a run's requests, in hex. Unless a caller's traceParent gives it, it is a hash of the
// run's id: samplers need bits that are as good as random, and those of an id are time, version and variant.
func TraceID(run uuid.UUID, traceParent string) string {
	trace := Origin{}.Trace(run, traceParent)
	return hex.EncodeToString(trace.ID[:])
}

// traceparent is the W3C trace context of an attempt. The trace is the run's, so all its attempts are seen together.
// The parent is the attempt. Nothing of it is random, so a request can be shown later as it was sent.
func (a Assignment) traceparent(o Origin) string {
	t, spans := o.Trace(a.RunID, a.TraceParent), SpansOf(a.RunID, a.Fence)
	text := []byte("00-00000000000000000000000000000000-0000000000000000-00")
	hex.Encode(text[3:35], t.ID[:])
	hex.Encode(text[36:52], spans.Attempt[:])
	if t.Sampled {
		text[54] = '1'
	}
	return string(text)
}

// later versions of the header may add fields
var traceParentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]([0-9a-f])($|-)`)

// ParseTraceParent returns the trace context in a header traceparent, in the form of version 00 with no flag but
// sampled. It returns nothing for a header that is not valid: the standard has it ignored.
func ParseTraceParent(header string) string {
	const none128, none64 = "00000000000000000000000000000000", "0000000000000000"
	m := traceParentForm.FindStringSubmatch(header)
	if m == nil || m[1] == "ff" || m[1] == "00" && len(header) != 55 || m[2] == none128 || m[3] == none64 {
		return ""
	}
	flag := "0"
	if digit, _ := hex.DecodeString("0" + m[4]); digit[0]&1 == 1 {
		flag = "1"
	}
	return "00-" + m[2] + "-" + m[3] + "-0" + flag
}

// ReadTraceParent reads what ParseTraceParent has returned. Root is the span that it names.
func ReadTraceParent(text string) (t Trace) {
	if len(text) != 55 {
		return t
	}
	_, _ = hex.Decode(t.ID[:], []byte(text[3:35]))
	_, _ = hex.Decode(t.Root[:], []byte(text[36:52]))
	t.Sampled = text[54] == '1'
	return t
}
