package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "punctual/internal/storetest"
)

// writes matches the statements that write a table, or what stands for the table of a day.
var writes = regexp.MustCompile(`\b(?:INSERT INTO|UPDATE|DELETE FROM|MERGE INTO|TRUNCATE)\s+(?:punctual\.|\{)([a-z_]+)`)

// A table is written by one package, so that what its rows must obey is in one place. The exceptions are named here by
// file, so that their number can only fall.
func TestEachTableIsWrittenByOnePackage(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{
		// A new job is written whole, by one statement or, in a batch, by a few.
		"audit_entries": {"jobs/insert.go"},
		"schedules":     {"jobs/insert.go"},
		"exclusive":     {"jobs/insert.go"},
		"dead_letters":  {"claim/finish_outcomes.go", "claim/sound.go"}, // a run's end, with the run
		// A dated run becomes a run, or is cancelled by the id that it has as a run.
		"dated":       {"claim/dated.go", "runs/dated.go"},
		"dated_work":  {"claim/dated.go"},       // a claim meets a dated run that no longer fits its job
		"tenants":     {"freeze/freeze.go"},     // whether a tenant is frozen
		"limits":      {"claim/limits.go"},      // a start under a rate moves it on
		"workflows":   {"claim/cancel.go"},      // whatever cancels a step has its workflow looked at
		"allowances":  {"replicas/replicas.go"}, // a replica that stops leaves them to others at once
		"job_secrets": {"jobs/versions.go"},     // no version refers to them any more
		// One row has what every replica must know of the deployment.
		"deployment": {
			"fences/fences.go", "replicas/heartbeat.go", "freeze/identity.go", "secrets/datakeys.go", "jobs/zones.go",
			"archive/drop.go", "archive/work.go",
		},
		// The rows of a day that was dropped are read back.
		"runs":         {"archive/import.go"},
		"attempts":     {"archive/import.go"},
		"run_data":     {"archive/import.go"},
		"job_versions": {"archive/import.go"},
	}
	tables := map[string]map[string][]string{} // the files that write a table, by package
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		for _, table := range written(t, file) {
			if slices.Contains(allowed[table], file) {
				continue
			}
			if tables[table] == nil {
				tables[table] = map[string][]string{}
			}
			tables[table][path.Dir(file)] = append(tables[table][path.Dir(file)], path.Base(file))
		}
		return nil
	})
	Must(t, err)
	for _, table := range []string{"runs", "schedules", "ready", "audit_entries"} {
		if len(tables[table]) == 0 {
			t.Errorf("no file is found that writes %s: this test sees nothing", table)
		}
	}
	for table, packages := range tables {
		if len(packages) > 1 {
			t.Errorf("%s is written by more than one package: %v", table, packages)
		}
	}
}

// written returns the tables that the SQL in a file writes.
func written(t *testing.T, file string) (tables []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	Must(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			for _, m := range writes.FindAllStringSubmatch(text.Value, -1) {
				tables = append(tables, m[1])
			}
		}
		return true
	})
	slices.Sort(tables)
	return slices.Compact(tables)
}
