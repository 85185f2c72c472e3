package domain

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// traceparent is the W3C trace context of an attempt. The trace is the run: its id without dashes. So one leads to
// the other, and all attempts are seen together. The parent is the attempt: a hash of the run and the fencing token,
// which no two attempts share. So a request can be shown later as it was sent. The trace is flagged as sampled: most
// tracers drop the traces of requests flagged otherwise, and keep sampled ones as configured.
func (a Assignment) traceparent() string {
	var input [24]byte
	copy(input[:], a.RunID[:])
	binary.BigEndian.PutUint64(input[16:], uint64(a.Fence))
	parent := sha256.Sum256(input[:])
	if binary.BigEndian.Uint64(parent[:8]) == 0 { // zero would mean no parent
		parent[7] = 1
	}
	const form = "00-00000000000000000000000000000000-0000000000000000-01"
	text := []byte(form)
	hex.Encode(text[3:35], a.RunID[:])
	hex.Encode(text[36:52], parent[:8])
	return string(text)
}
