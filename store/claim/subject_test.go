package claim

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"punctual/scheduler"
)

// The package's doc names the subjects of a claim of ready in the order in which they decide.
func TestSubjectsDecideInTheOrderThatIsWrittenDown(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var written, asked []string
	for _, m := range regexp.MustCompile(`(?m)^// +\d+\. (\w+) \(`).FindAllSubmatch(doc, -1) {
		written = append(written, string(m[1]))
	}
	for _, s := range newWaitingClaim(nil, scheduler.Claim{}, taking{}, false).subjects {
		asked = append(asked, reflect.TypeOf(s).Elem().Name())
	}
	if !slices.Equal(written, asked) {
		t.Errorf("the subjects are asked in the order %q, and doc.go says %q", asked, written)
	}
}
