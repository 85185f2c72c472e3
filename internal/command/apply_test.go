package command

import (
	"fmt"
	"testing"

	"punctual/httpapi/manifest"
)

// A job of a circle stays somewhere: the API refuses it.
func TestJobsAreAppliedAfterThoseThatTheyTrigger(t *testing.T) {
	t.Parallel()
	jobs, err := manifest.Read([]byte(`[
		{"name": "a", "target": {"url": "http://x"}, "then": [{"job": "c"}, {"job": "elsewhere"}]},
		{"name": "b", "target": {"url": "http://x"}, "then": [{"job": "a"}]},
		{"name": "c", "target": {"url": "http://x"}, "then": [{"job": "d"}]},
		{"name": "d", "target": {"url": "http://x"}, "then": [{"job": "c"}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, job := range afterTheirTargets(jobs) {
		names = append(names, job.Name)
	}
	if got := fmt.Sprint(names); got != "[d c a b]" {
		t.Errorf("applied in the order %s", got)
	}
}
