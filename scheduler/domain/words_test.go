package domain

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheListsHaveEveryConstant(t *testing.T) {
	t.Parallel()
	declared := constants(t)
	for kind, listed := range map[string][]string{
		"Status": wordsOf(Statuses()), "Trigger": wordsOf(Triggers()), "AttemptOutcome": wordsOf(AttemptOutcomes()),
		"Reason": wordsOf(Reasons()),
	} {
		if len(declared[kind]) == 0 {
			t.Errorf("no constants of type %s were found", kind)
		}
		slices.Sort(listed)
		slices.Sort(declared[kind])
		if diff := cmp.Diff(declared[kind], listed); diff != "" {
			t.Errorf("words.go does not list the constants of type %s (-declared +listed):\n%s", kind, diff)
		}
	}
}

// constants returns the values of this package's typed string constants by the name of their type.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	files, err := os.ReadDir(".")
	must(t, err)
	found := map[string][]string{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(gotoken.NewFileSet(), f.Name(), nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			constant, ok := n.(*ast.ValueSpec)
			if !ok || len(constant.Values) != 1 {
				return true
			}
			kind, named := constant.Type.(*ast.Ident)
			text, literal := constant.Values[0].(*ast.BasicLit)
			if named && literal && text.Kind == gotoken.STRING {
				value, _ := strconv.Unquote(text.Value) // a parsed literal is always valid
				found[kind.Name] = append(found[kind.Name], value)
			}
			return true
		})
	}
	return found
}

// endsOf returns the final statuses that a reason can lead to; none for an unknown reason.
func endsOf(r Reason) []Status {
	for _, e := range ends {
		if e.reason == r {
			return e.in
		}
	}
	return nil
}

func TestEveryReasonEndsInAFinalStatus(t *testing.T) {
	t.Parallel()
	for _, r := range Reasons() {
		in := endsOf(r)
		if len(in) == 0 || slices.ContainsFunc(in, func(s Status) bool { return !s.Final() || s == StatusSucceeded }) {
			t.Errorf("%s ends in %v", r, in)
		}
	}
	if endsOf("") != nil || len(ReasonsOf(StatusSucceeded)) > 0 {
		t.Error("a plain success has a reason")
	}
}

func TestEveryWordIsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/reasons.md")
	must(t, err)
	for title, listed := range map[string][]string{
		"Statuses": wordsOf(Statuses()), "Triggers": wordsOf(Triggers()), "Outcomes of attempts": wordsOf(AttemptOutcomes()),
		"Reasons": wordsOf(Reasons()),
	} {
		var documented []string
		for _, row := range table(string(page), title) {
			documented = append(documented, strings.Trim(row[0], "`"))
			if slices.Contains(row, "") && title != "Statuses" || row[len(row)-1] == "" {
				t.Errorf("%s: the line of %s has an empty cell", title, row[0])
			}
		}
		if diff := cmp.Diff(listed, documented); diff != "" {
			t.Errorf("docs/reference/reasons.md, %s (-listed +documented):\n%s", title, diff)
		}
	}
	for _, row := range table(string(page), "Reasons") {
		if want := strings.Join(wordsOf(endsOf(Reason(strings.Trim(row[0], "`")))), ", "); row[1] != want {
			t.Errorf("docs/reference/reasons.md: %s ends as %q, want %q", row[0], row[1], want)
		}
	}
	for _, row := range table(string(page), "Statuses") {
		if final := Status(strings.Trim(row[0], "`")).Final(); (row[1] == "yes") != final {
			t.Errorf("docs/reference/reasons.md: %s is final: %q, want %v", row[0], row[1], final)
		}
	}
}

// table returns the cells of the table below a second-level heading, without the table's header row.
func table(page, title string) (rows [][]string) {
	_, section, _ := strings.Cut(page, "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, line := range regexp.MustCompile("(?m)^\\| `.*\\|$").FindAllString(section, -1) {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
		}
		rows = append(rows, cells)
	}
	return rows
}

func wordsOf[T ~string](all []T) []string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = string(word)
	}
	return words
}
