package pgtest

import "testing"

// Exhaustive begins a test that `make test` leaves out and `make prove` runs, because it takes long. The Makefile finds
// the call in the test itself.
func Exhaustive(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in `make prove` only: " + why)
	}
}
