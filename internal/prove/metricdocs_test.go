package prove

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	declaredMetric = regexp.MustCompile(`(?:Name: +|NewDesc\()"(punctual_\w+)"`)
	namedMetric    = regexp.MustCompile(`\bpunctual_\w+`)
	metricRow      = regexp.MustCompile("(?m)^\\| *`(punctual_\\w+)")
)

// Each metric of the product is on a page, and the reference of the metrics, if there is one, has each and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	t.Parallel()
	const reference = "docs/reference/metrics.md"
	declared, told := map[string]bool{}, map[string]bool{}
	for _, dir := range []string{"httpapi", "scheduler", "store", "internal/server"} {
		must(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				for _, m := range declaredMetric.FindAllStringSubmatch(readFile(t, path), -1) {
					declared[m[1]] = true
				}
			}
			return err
		}))
	}
	list := pages(t)
	if slices.Contains(list, reference) {
		list = []string{reference}
	}
	for _, page := range list {
		for _, name := range namedMetric.FindAllString(readFile(t, filepath.Join(root, page)), -1) {
			name = seriesEnd.ReplaceAllString(name, "")
			told[name] = true
		}
		for _, row := range metricRow.FindAllStringSubmatch(readFile(t, filepath.Join(root, page)), -1) {
			if name := seriesEnd.ReplaceAllString(row[1], ""); page == reference && !declared[name] {
				t.Errorf("%s: there is no metric %s", page, name)
			}
		}
	}
	for name := range declared {
		if !told[name] {
			t.Errorf("no page tells of the metric %s", name)
		}
	}
	if len(declared) < 25 {
		t.Errorf("%d metrics", len(declared))
	}
}

// seriesEnd matches what a histogram adds to its name.
var seriesEnd = regexp.MustCompile(`_(bucket|sum|count)$`)
