package command

import (
	"strings"
	"testing"
)

func TestDevKeepsItsDataWhereItsPostgresMayGo(t *testing.T) {
	if dir, err := devDir(0); err != nil || dir != "/var/lib/punctual-dev" {
		t.Errorf("root's is %q, error %v", dir, err)
	}
	t.Setenv("HOME", "/home/alice")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := devDir(1000); err != nil || !strings.HasPrefix(dir, "/home/alice/") ||
		!strings.HasSuffix(dir, "punctual-dev") {
		t.Errorf("a user's is %q, error %v", dir, err)
	}
}
