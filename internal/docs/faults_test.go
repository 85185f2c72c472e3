package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const faultsPage = "internal/prove/README.md"

type faultSection struct{ word, title string }

// faultSections are the sections of the list of faults. A test names its section in a directive at the end of its
// comment, such as //prove:replicas. A file of package prove does so above its package clause, for all of its tests.
// Tests of "other" are not in the list. They check no fault: pages, packages, figures, and the tools of the tests.
var faultSections = []faultSection{
	{"replicas", "Replicas that die, freeze or stop"},
	{"claims", "Races"},
	{"limits", "Limits and reserves"},
	{"targets", "Targets"},
	{"addresses", "Forbidden addresses and proxies"},
	{"chains", "Workflows, chains, events and backfills"},
	{"reports", "Work that targets report in SQL"},
	{"database", "The database and the network to it"},
	{"clocks", "Clocks and time zones"},
	{"freezes", "Freezes and restores"},
	{"data", "Expiry and long lists"},
	{"releases", "Releases"},
	{"api", "The API"},
	{"tenants", "Tenants and secrets"},
	{"notices", "Notices"},
	{"alerts", "Alerts"},
	{"soaks", "Combined"},
}

// proved is a test of a fault, or of another promise.
type proved struct{ file, name, section, about string }

// The list of faults is written from the comments of the tests: each first paragraph is a line of it.
func TestTheListOfFaultsIsWritten(t *testing.T) {
	begin := "\n## " + faultSections[0].title + "\n"
	head, _, has := strings.Cut(Read(t, faultsPage), begin)
	if !has {
		t.Fatalf("%s lacks the heading of the first section:%s", faultsPage, begin)
	}
	tests := provedBy(t)
	var page strings.Builder
	page.WriteString(head)
	for _, section := range faultSections {
		fmt.Fprintf(&page, "\n## %s\n\n", section.title)
		n := page.Len()
		for _, test := range tests {
			if test.section != section.word {
				continue
			}
			file, err := filepath.Rel(path.Dir(faultsPage), test.file)
			must(t, err)
			fmt.Fprintf(&page, "- %s [%s](%s)\n", fileNamed.ReplaceAllStringFunc(test.about, func(named string) string {
				return fmt.Sprintf("[%s](../../%s)", path.Base(named), named)
			}), test.name, file)
		}
		if page.Len() == n {
			t.Errorf("there is no test of %s", section.word)
		}
		if section.word == "alerts" {
			page.WriteString("\nBy fault:\n\n" + alertsByFault(t))
		}
	}
	checkLines(page.String(), faultsPage, func(at, text string) {
		for _, wrong := range refusedIn(text) {
			t.Errorf("%s: %s", at, wrong)
		}
	})
	written(t, faultsPage, page.String())
}

// fileNamed matches files of the repository that a comment names.
var fileNamed = regexp.MustCompile(`\b(?:docs|internal|scheduler|store)/[\w/-]+\.(?:go|md|yml)\b`)

// provedBy returns the tests that name a section, those of package prove first. All of that package must.
func provedBy(t *testing.T) (tests []proved) {
	t.Helper()
	must(t, fs.WalkDir(os.DirFS(Root), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.Name() == "node_modules":
			return fs.SkipDir
		case strings.HasSuffix(file, "_test.go"):
			ours, source := path.Dir(file) == path.Dir(faultsPage), Read(t, file)
			if ours || strings.Contains(source, "\n//prove:") {
				tests = append(tests, provedIn(t, file, source, ours)...)
			}
		}
		return err
	}))
	slices.SortStableFunc(tests, func(a, b proved) int { return strings.Compare(order(a.file), order(b.file)) })
	if len(tests) < 200 {
		t.Errorf("%d tests", len(tests))
	}
	return tests
}

// order returns what files are ordered by.
func order(file string) string {
	if path.Dir(file) == path.Dir(faultsPage) {
		return " " + file
	}
	return file
}

func provedIn(t *testing.T, file, source string, all bool) (tests []proved) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ParseComments|parser.SkipObjectResolution)
	must(t, err)
	ofFile := ""
	for _, comment := range parsed.Comments {
		if comment.Pos() < parsed.Package {
			ofFile += directive(comment)
		}
	}
	for _, decl := range parsed.Decls {
		f, is := decl.(*ast.FuncDecl)
		if !is || !testName.MatchString(f.Name.Name) || f.Name.Name == "TestMain" {
			continue
		}
		section := directive(f.Doc)
		if section == "" {
			section = ofFile
		}
		if section == "" && !all {
			continue
		}
		about, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
		about = strings.Join(strings.Fields(about), " ")
		known := slices.ContainsFunc(faultSections, func(s faultSection) bool { return s.word == section })
		if !known && section != "other" || !strings.HasSuffix(about, ".") {
			t.Errorf("%s: %s: the section is %q, and the comment %q", file, f.Name.Name, section, about)
		}
		tests = append(tests, proved{file, f.Name.Name, section, about})
	}
	return tests
}

var testName = regexp.MustCompile(`^(Test|Fuzz)[A-Z]`)

// directive returns the section that a comment names.
func directive(comment *ast.CommentGroup) (section string) {
	if comment == nil {
		return ""
	}
	for _, line := range comment.List {
		if word, is := strings.CutPrefix(line.Text, "//prove:"); is {
			section = word
		}
	}
	return section
}

// alertsByFault lists the faults of the scenes with the rules that they fire.
func alertsByFault(t *testing.T) (list string) {
	t.Helper()
	const file = "internal/prove/alarms_scenes_test.go"
	parsed, err := parser.ParseFile(token.NewFileSet(), file, Read(t, file), parser.SkipObjectResolution)
	must(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		fault, is := n.(*ast.CompositeLit)
		if !is || len(fault.Elts) != 3 { // an alarming: rules, fault, begin
			return true
		}
		rules, is := fault.Elts[0].(*ast.CompositeLit)
		about, text := joined(fault.Elts[1])
		if !is || !text {
			return true
		}
		var names []string
		for _, rule := range rules.Elts {
			name, _ := joined(rule)
			names = append(names, "`"+name+"`")
		}
		list += fmt.Sprintf("- %s: %s\n", about, strings.Join(names, ", "))
		return false
	})
	if n := strings.Count(list, "\n"); n < 20 {
		t.Errorf("%d faults fire alerts", n)
	}
	return list
}
