package pgtest

import (
	"testing"

	"punctual/store/vault"
)

// Master returns a master key of its own, as every deployment has one.
func Master(t testing.TB) *vault.Master {
	t.Helper()
	m, err := vault.ParseMaster(vault.NewMasterKey())
	if err != nil {
		t.Fatalf("make a master key: %v", err)
	}
	return m
}
