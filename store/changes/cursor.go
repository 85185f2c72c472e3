package changes

import (
	"encoding/base64"
	"encoding/binary"
	"math"

	"github.com/google/uuid"

	"punctual/scheduler/jobspec"
	"punctual/store/pg"
)

// CodeCursorGone says that a feed cannot continue from a cursor.
const CodeCursorGone = "cursor_gone"

// startAgain says how to read on after a cursor that is refused.
const startAgain = "leave after out to start again from the oldest change that is kept"

func gone(reason string) error {
	return &jobspec.Refusal{Code: CodeCursorGone, Reason: reason + "; " + startAgain}
}

// position is a place in a feed: behind a run of a row of changes.
type position struct {
	Feed   uuid.UUID
	XID    int64
	ID     int64
	Run    int32 // its number in the row, from 1; whole: all of them
	Micros int64 // when the row was recorded
}

// whole is a position behind all runs of a row.
const whole = math.MaxInt32

// feedCursor begins the cursors of feeds.
const feedCursor byte = 'c'

func (p position) String() string {
	raw, _ := binary.Append([]byte{feedCursor}, binary.BigEndian, p) // never fails: its size is fixed
	return base64.RawURLEncoding.EncodeToString(raw)
}

func parse(cursor string) (p position, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) != 1+binary.Size(p) || raw[0] != feedCursor {
		return p, &pg.CursorError{Cursor: cursor, Param: "after"}
	}
	_, err = binary.Decode(raw[1:], binary.BigEndian, &p)
	return p, err
}

// before reports whether p lies before the end of the row with the given ids.
func (p position) before(xid int64, id int64) bool {
	if p.XID != xid {
		return p.XID < xid
	}
	return p.ID < id || p.ID == id && p.Run < whole
}
