package secrets

import (
	"testing"
	"time"
)

// docs/security/secrets.md promises this: a value that was read just before a change stays trusted for a while, and is
// then read anew.
func TestAChangedSecretIsUsedWithinTenSeconds(t *testing.T) {
	t.Parallel()
	if longest := secretsBelieved + secretsTimeout; longest >= 10*time.Second {
		t.Errorf("it may take %s", longest)
	}
}
