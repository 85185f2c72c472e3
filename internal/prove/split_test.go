package prove

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayLeaveOut lists the only files that may skip or shorten tests, with the reason why no promise goes untested by
// that.
var mayLeaveOut = map[string]string{
	"internal/prove/prove_test.go":             "exhaustive: `make prove` runs it",
	"internal/bench/bench_test.go":             "benchmarks of several sizes: `make prove` runs them",
	"internal/prove/soak_test.go":              "soak: `make soak` runs it",
	"internal/prove/balancer_test.go":          "fewer restarts in `make test`",
	"internal/prove/shared_limits_test.go":     "a hundred runs in `make test`, two thousand in `make prove`",
	"internal/prove/replicas_test.go":          "a smaller load in `make test`",
	"store/notices/property_test.go":           "twenty incidents in `make test`, five hundred in `make prove`",
	"store/claim/reports_race_test.go":         "fifteen rounds in `make test`, two hundred in `make prove`",
	"store/claim/overlap_claim_test.go":        "three rounds in `make test`, thirty in `make prove`",
	"store/history/verify_property_test.go":    "one life in `make test`, eight in `make prove`",
	"store/model_property_test.go":             "seven histories in `make test`, sixty in `make prove`",
	"store/meetings_test.go":                   "a third of the pairs in `make test`, all in `make prove`",
	"internal/prove/split_test.go":             "this test",
	"store/links/chains_property_test.go":      "120 ends in `make test`, two thousand in `make prove`",
	"store/jobs/dated_test.go":                 "fewer moves: `make prove` runs it in full",
	"store/claim/limits_test.go":               "thirty runs in `make test`, a hundred in `make prove`",
	"store/jobs/race_test.go":                  "twelve writes of each kind in `make test`, forty in `make prove`",
	"store/links/chains_test.go":               "ten rounds in `make test`, thirty in `make prove`",
	"store/claim/workflows_test.go":            "forty workflows in `make test`, three hundred in `make prove`",
	"httpapi/dashboard/screens_test.go":        "one width in `make test`, three in `make prove`",
	"store/grants_test.go":                     "four hundred callers in `make test`, ten thousand in `make prove`",
	"scheduler/bench_test.go":                  "the target of a benchmark, no test",
	"scheduler/delivery/bench_test.go":         "the target of a benchmark, no test",
	"scheduler/delivery/hostile_test.go":       "counts open files where /proc tells them",
	"scheduler/cron/property_test.go":          "inputs of a fuzzer that say nothing",
	"scheduler/domain/decide_property_test.go": "inputs of a fuzzer that say nothing",
}

// leavesOut is how the Makefile finds the tests that `make prove` runs. Written so, this file has none of it.
var leavesOut = []string{"exhaustive" + "(t,", "Exhaustive" + "(t,", "thorough" + "(t)"}

// proved are the packages in which the Makefile looks for such tests.
var proved = []string{"internal/prove", "internal/bench", "store", "httpapi/dashboard"} // and the rooms of store

var skips = []string{".Skip(", ".Skipf(", ".SkipNow(", "testing.Short()"}

// anyOf tells whether a text has one of the parts.
func anyOf(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// Every test runs in `make test` or in `make prove`, and tests that take minutes in `make soak`. Only exhaustive,
// thorough and soak leave tests out. CI runs both.
func TestEveryTestRunsSomewhere(t *testing.T) {
	t.Parallel()
	if err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		read, err := os.ReadFile(path)
		source := string(read)
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if anyOf(source, skips) && mayLeaveOut[name] == "" {
			t.Errorf("%s leaves a test out; call exhaustive(t, …) or pgtest.Exhaustive(t, …), or make it short enough", name)
		}
		test := ""
		if !anyOf(source, leavesOut) {
			return nil
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		if !slices.Contains(proved, folder) && !strings.HasPrefix(folder, "store/") {
			t.Errorf("%s leaves a test out, and `make prove` does not run its package", name)
		}
		for line := range strings.Lines(source) {
			if after, begins := strings.CutPrefix(line, "func "); begins {
				test = after
			}
			if anyOf(line, leavesOut) && !strings.HasPrefix(test, "Test") {
				t.Errorf("%s leaves a test out where `make prove` does not find it: leave it out in the test itself", name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for file, lines := range map[string][]string{
		"Makefile": {"-race -short ", "\t./internal/prove ./internal/bench\n", "\t$(ARGS) ./store/... ./httpapi/dashboard\n", " -run '^TestSoak' "},
		".ci/run":  {"\nrun make test\n", "\n  run make prove\n"},
	} {
		text := readFile(t, "../../"+file)
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s does not say %q", file, line)
			}
		}
	}
}

// `make soak` finds a soak test by its name.
func TestASoakIsCalledSo(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	soaks := 0
	for _, name := range files {
		for _, f := range strings.Split(readFile(t, name), "\nfunc ")[1:] {
			body, _, _ := strings.Cut(f, "\n}\n")
			named, is := strings.HasPrefix(body, "TestSoak"), strings.Contains(body, "soak(t)") && name != "split_test.go"
			if named != is {
				t.Errorf("%s: %s: a test that calls soak is to be called TestSoak…, and no other", name,
					body[:strings.IndexByte(body, '(')])
			}
			if is {
				soaks++
			}
		}
	}
	if soaks < 3 {
		t.Errorf("%d soaks", soaks)
	}
}
