package docs

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	declaredMetric = regexp.MustCompile(`(?:Name: +|\w\()"(punctual_\w+)"`)
	namedMetric    = regexp.MustCompile(`\bpunctual_\w+`)
	metricRow      = regexp.MustCompile("(?m)^\\| *`(punctual_\\w+)")
)

// docs/reference/metrics.md has each metric of the product, and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	t.Parallel()
	const reference = "docs/reference/metrics.md"
	declared, told := map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"httpapi", "scheduler", "store", "internal/server"} {
		must(t, fs.WalkDir(os.DirFS(Root), dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				for _, m := range declaredMetric.FindAllStringSubmatch(Read(t, path), -1) {
					declared[m[1]] = true
				}
			}
			return err
		}))
	}
	if !slices.Contains(Pages(t), reference) {
		return // the page is still to be written
	}
	page := Read(t, reference)
	for _, name := range namedMetric.FindAllString(page, -1) {
		told[seriesEnd.ReplaceAllString(name, "")] = true
	}
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		if name := seriesEnd.ReplaceAllString(row[1], ""); !declared[name] {
			t.Errorf("%s: there is no metric %s", reference, name)
		}
	}
	for name := range declared {
		if !told[name] {
			t.Errorf("%s does not tell of %s", reference, name)
		}
	}
	if len(declared) < 25 {
		t.Errorf("%d metrics", len(declared))
	}
}

// seriesEnd matches what a histogram adds to its name.
var seriesEnd = regexp.MustCompile(`_(bucket|sum|count)$`)
