package docs

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayLeaveOut lists the only files that may skip or shorten tests, besides those of proofs, with the reason why no
// promise goes untested by that.
var mayLeaveOut = map[string]string{
	"store/notices/property_test.go":           "twenty incidents in `make test`, five hundred in `make prove`",
	"store/reports/race_test.go":               "fifteen rounds in `make test`, two hundred in `make prove`",
	"store/claim/overlap_claim_test.go":        "three rounds in `make test`, thirty in `make prove`",
	"store/history/verify_corruptions_test.go": "a quarter of the corruptions in `make test`, all in `make prove`",
	"store/history/verify_property_test.go":    "one life in `make test`, eight in `make prove`",
	"store/model_property_test.go":             "seven histories in `make test`, sixty in `make prove`",
	"store/meetings_test.go":                   "a third of the pairs in `make test`, all in `make prove`",
	"store/links/chains_property_test.go":      "120 ends in `make test`, two thousand in `make prove`",
	"store/jobs/dated_test.go":                 "fewer moves: `make prove` runs it in full",
	"store/claim/limits_test.go":               "thirty runs in `make test`, a hundred in `make prove`",
	"store/jobs/race_test.go":                  "twelve writes of each kind in `make test`, forty in `make prove`",
	"store/links/chains_test.go":               "ten rounds in `make test`, thirty in `make prove`",
	"store/flow/workflows_test.go":             "fifteen workflows in `make test`, three hundred in `make prove`",
	"store/grants_test.go":                     "four hundred callers in `make test`, ten thousand in `make prove`",
	"scheduler/bench_test.go":                  "the target of a benchmark, no test",
	"scheduler/delivery/bench_test.go":         "the target of a benchmark, no test",
	"scheduler/delivery/hostile_test.go":       "counts open files where /proc tells them",
	"scheduler/cron/property_test.go":          "inputs of a fuzzer that say nothing",
	"scheduler/domain/decide_property_test.go": "inputs of a fuzzer that say nothing",
	"internal/docs/split_test.go":              "this test",
}

// proofs are the packages of which `make prove` runs all tests. `make test` runs what -short leaves of them.
var proofs = []string{"internal/prove", "internal/bench", "internal/command", "internal/privatepg", "httpapi/dashboard"}

// leavesOut is how the Makefile finds tests of the store that -short leaves out or shortens. Written so, this file has
// none of it.
var leavesOut = []string{"Exhaustive" + "(t,", "testing." + "Short"}

var skips = []string{".Skip(", ".Skipf(", ".SkipNow(", "testing.Short()"}

// anyOf tells whether a text has one of the parts.
func anyOf(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// Every test runs in `make test` or in `make prove`, and tests that take minutes in `make soak`. CI runs both.
func TestEveryTestRunsSomewhere(t *testing.T) {
	t.Parallel()
	must(t, fs.WalkDir(os.DirFS(Root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") || slices.Contains(proofs, path.Dir(name)) {
			return err
		}
		source := Read(t, name)
		if anyOf(source, skips) && mayLeaveOut[name] == "" {
			t.Errorf("%s leaves a test out: call pgtest.Exhaustive, or make it short enough", name)
		}
		if anyOf(source, leavesOut) {
			found(t, name, source)
		}
		return nil
	}))
	for file, lines := range map[string][]string{
		"Makefile": {
			"PROOFS := ./" + strings.Join(proofs, " ./") + "\n", " -short ", "\t$(ARGS) $(PROOFS)\n",
			"\t-run '^($(call rest,store/*_test.go store/*/*_test.go))$$' $(ARGS) ./store/...\n", " -run '^TestSoak' ",
		},
		".ci/run": {"\nrun make test\n", "run make race;", "run make prove;"},
	} {
		text := Read(t, file)
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s does not say %q", file, line)
			}
		}
	}
}

// found checks that the Makefile finds each test of a file that -short leaves out or shortens.
func found(t *testing.T, name, source string) {
	t.Helper()
	if !strings.HasPrefix(name, "store/") {
		if strings.Contains(source, leavesOut[0]) {
			t.Errorf("%s leaves a test out, and `make prove` does not run its package", name)
		}
		return
	}
	test := ""
	for line := range strings.Lines(source) {
		if after, begins := strings.CutPrefix(line, "func "); begins {
			test = after
		}
		if anyOf(line, leavesOut) && !strings.HasPrefix(test, "Test") {
			t.Errorf("%s leaves a test out where `make prove` does not find it: leave it out in the test itself", name)
		}
	}
}

// `make soak` finds a soak test by its name.
func TestASoakIsCalledSo(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(os.DirFS(Root), "internal/prove/*_test.go")
	must(t, err)
	soaks := 0
	for _, name := range files {
		for _, f := range strings.Split(Read(t, name), "\nfunc ")[1:] {
			body, _, _ := strings.Cut(f, "\n}\n")
			named, is := strings.HasPrefix(body, "TestSoak"), strings.Contains(body, "soak(t)")
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
