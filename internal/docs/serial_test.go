package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goesBeside returns where Go files start goroutines.
func goesBeside(t *testing.T, files []string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	for _, name := range files {
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				found = append(found, set.Position(n.Pos()).String())
			case *ast.SelectorExpr:
				if n.Sel.Name == "Go" || n.Sel.Name == "RunParallel" { // of groups, and of benchmarks
					found = append(found, set.Position(n.Pos()).String())
				}
			}
			return true
		})
	}
	return found
}

// `make race` leaves some packages out. That is fair as long as their tests start no goroutine.
// Tests that run in parallel share only what the zone data and compiled expressions are kept in, and the tests of the
// store and of the loops race for that with the detector.
func TestNothingRunsBesideATestWithoutTheRaceDetector(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?m)^SERIAL := \$\(patsubst %,punctual/%,(.+)\)$`).FindStringSubmatch(Read(t, "Makefile"))
	if list == nil {
		t.Fatal("the Makefile names no packages")
	}
	for name := range strings.FieldsSeq(list[1]) {
		files, err := filepath.Glob(filepath.Join(Root, name, "*.go"))
		must(t, err)
		if found := goesBeside(t, files); len(files) == 0 || found != nil {
			t.Errorf("%s: of %d files, these start a goroutine: %q", name, len(files), found)
		}
	}
	if goesBeside(t, []string{"../prove/replicas_test.go", "../prove/witness.go"}) == nil {
		t.Error("no goroutine is seen where there are some")
	}
}
