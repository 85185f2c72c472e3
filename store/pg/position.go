package pg

import (
	"context"
	"regexp"
)

// Position is a place in the write-ahead log, as Postgres writes it, such as 16/B374D848. Who has replayed the log to
// there has all that was committed before. Empty: none.
type Position string

// NowhereYet is a position that no standby has reached. So whoever has it is answered by the primary.
const NowhereYet Position = "FFFFFFFF/FFFFFFFF"

var positionForm = regexp.MustCompile(`^[0-9A-F]{1,8}/[0-9A-F]{1,8}$`)

// ParsePosition reads a position. ok is false if the text is none.
func ParsePosition(text string) (p Position, ok bool) {
	return Position(text), positionForm.MatchString(text)
}

// Position returns a place in the log behind all that was committed until now. If the database does not tell, it is
// NowhereYet.
func (p *Pool) Position(ctx context.Context) Position {
	var at Position
	if err := p.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at); err != nil {
		return NowhereYet
	}
	return at
}
