package migrations_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"testing"

	"punctual/migrations"
)

// Databases of 0.1.0 have this migration applied: what changes from here on is a migration of its own, which only
// expands.
func TestTheInitialMigrationIsFrozen(t *testing.T) {
	const frozen = "375dd30e20fd2b168d8568a4702d4ff28c0452019c77947d0976a6aa802dfa55"
	text, err := fs.ReadFile(migrations.FS, "00001_initial.sql")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != frozen {
		t.Errorf("00001_initial.sql has changed: restore it, and write the change as the next migration")
	}
}
