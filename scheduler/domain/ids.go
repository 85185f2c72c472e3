package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// SlotRunID returns the id of a slot's run: a UUIDv8 laid out like v7, with the slot in milliseconds in 48 bits and
// then bits of a hash of (job, slot). So a slot can have only one run, the id leads to one daily partition, and a
// slot fired again after a failover carries the same id.
func SlotRunID(job uuid.UUID, scheduledFor time.Time) uuid.UUID {
	sum := hashOf(job, scheduledFor.UnixMilli())
	return timedID(scheduledFor, sum[:], 0x80)
}

// EventRunID returns the id of the run that an event makes for a subscriber: a UUIDv8 laid out like that of a slot,
// with the milliseconds of the event and bits of a hash of (event, job). So an event has at most one run of each job,
// whichever replica makes it, and all its runs have ids next to each other.
func EventRunID(event, job uuid.UUID) uuid.UUID {
	sum := sha256.Sum256(append(event[:], job[:]...))
	return timedID(IDTime(event), sum[:], 0x80)
}

// hashOf returns the SHA-256 of an id and a number.
func hashOf(id uuid.UUID, n int64) [sha256.Size]byte {
	var input [24]byte
	copy(input[:], id[:])
	binary.BigEndian.PutUint64(input[16:], uint64(n))
	return sha256.Sum256(input[:])
}

// NewRunID returns a UUIDv7 for a row that no slot determines: a manual run or a skip. The time is the database's,
// because it decides which daily partition the row goes to.
func NewRunID(now time.Time) uuid.UUID {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails
	return timedID(now, random[:], 0x70)
}

// FirstRunID returns the lowest id that a run made at the given time can have.
func FirstRunID(t time.Time) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(max(0, t.UnixMilli()))<<16)
	return id
}

// timedID lays out 48 bits of milliseconds, a version, and 74 of the given bits.
func timedID(t time.Time, bits []byte, version byte) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16)
	copy(id[6:], bits[:10])
	id[6] = id[6]&0x0f | version
	id[8] = id[8]&0x3f | 0x80
	return id
}

// IDTime returns the time with which an id begins, to the millisecond.
func IDTime(id uuid.UUID) time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}
