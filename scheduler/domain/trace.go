package domain

import (
	"encoding/binary"
	"encoding/hex"

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

// notAnAttempt is in place of a fencing token, so that the hash for a run's trace is no attempt's.
const notAnAttempt = -1

// TraceID returns the trace id of a run's requests, in hex. It is a hash of the run's id: samplers need bits that are
// as good as random, and those of an id are time, version and variant.
func TraceID(run uuid.UUID) string {
	trace := hashOf(run, notAnAttempt)
	return hex.EncodeToString(trace[:16])
}

// traceparent is the W3C trace context of an attempt. The trace is the run's, so all its attempts are seen together.
// The parent is the attempt: a hash of the run and the fencing token, which no two attempts share. So a request can be
// shown later as it was sent.
func (a Assignment) traceparent(o Origin) string {
	trace, parent := hashOf(a.RunID, notAnAttempt), hashOf(a.RunID, a.Fence)
	if binary.BigEndian.Uint64(parent[:8]) == 0 { // zero would mean no parent
		parent[7] = 1
	}
	text := []byte("00-00000000000000000000000000000000-0000000000000000-00")
	hex.Encode(text[3:35], trace[:16])
	hex.Encode(text[36:52], parent[:8])
	if o.samples(trace[:16]) {
		text[54] = '1'
	}
	return string(text)
}
