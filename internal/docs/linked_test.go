package docs

import (
	"os/exec"
	"regexp"
	"testing"
)

// Nothing of what measures, proves and tests the product is linked into it.
func TestTheBinaryHasNoTestsInIt(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "punctual").Output()
	must(t, err)
	if linked := regexp.MustCompile(`(?m)^(punctual/internal/(bench|prove|docs|\w+test)\b.*|testing)$`).FindAllString(
		string(out), -1); linked != nil {
		t.Errorf("it has %q", linked)
	}
	if !regexp.MustCompile(`(?m)^punctual/internal/command$`).Match(out) {
		t.Errorf("it has no commands:\n%s", out)
	}
}
