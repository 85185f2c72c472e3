package pgtest

import (
	"testing"

	"punctual/store/vault"
)

// Master returns a new master key, as every deployment has one of its own.
func Master(t testing.TB) *vault.Master {
	t.Helper()
	m, err := vault.ParseMaster(vault.NewMasterKey())
	if err != nil {
		t.Fatalf("make a master key: %v", err)
	}
	return m
}
