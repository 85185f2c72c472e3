package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// patterns are what docs/STYLE.md tells not to write, and what to write. A text without the letters has no match. It is
// not searched, which takes a tenth of the time.
var patterns = []struct {
	letters string
	refused *regexp.Regexp
	instead string
}{
	{"body", regexp.MustCompile(`(?i)\b(some|any|every|no)body\b`), "you, or the role"},
	{" since", regexp.MustCompile(`\b(is|are) (\w+ )?\w+ since\b`), "has been … since"},
	{"beside", regexp.MustCompile(`(?i)\bbeside\b`), "next to"},
	{"in turns", regexp.MustCompile(`(?i)\bin turns\b`), "interleaved"},
	{"gently", regexp.MustCompile(`(?i)\bgently\b`), "gradually"},
	{"go", regexp.MustCompile(`(?i)\bgo(es)? on\b`), "resume, continue"},
	{"as ever", regexp.MustCompile(`(?i)\bas ever\b`), "as always"},
	{" hand", regexp.MustCompile(`(?i)\b(by|a) hand\b`), "manual"},
	{"worker slot", regexp.MustCompile(`(?i)\bworker slots?\b`), "concurrency"},
	{"what ", regexp.MustCompile(`(?:^|[.!?:|>-] |")What [a-z][^.?!]*(\.|$)`), "the name of the thing"},
	{" no ", regexp.MustCompile(`\b(?:it|that|this|which|and|but|an? \w+) (?:is|are|was|were) no (?:[a-km-z]|l[^o])\w*`), "is not a"},
	{"equal", regexp.MustCompile(`\b(?:has|have|had) no equal\b`), "no equivalent"},
	{"anew", regexp.MustCompile(`[a-z] anew[ .,;:]`), "again, or a verb with re-"},
	{"make", regexp.MustCompile(
		`(?i)\bmak(?:es?|ing) (?:an? |another )(?:new |further |signing |database |master )*(?:secret|key|role|schema|tenant|token|run|job|limit|partition)s?\b`,
	), "create"},
	{" of", regexp.MustCompile(`(?i)\b(?:tells?|told) of\b`), "notify, report"},
	{"ever", regexp.MustCompile(`(?i)\bwhatever\b|\bhowever (?:many|much|often|old|long|late|lively|they|it)\b`), "even if, regardless of, any"},
	{"holds that", regexp.MustCompile(`\bholds that\b`), "checks that"},
	{"alarm", regexp.MustCompile(`(?i)\balarms?\b`), "alert"},
	{"mend", regexp.MustCompile(`(?i)\bmend(?:s|ed|ing)?\b`), "fix"},
	{"so ", regexp.MustCompile(`(?:^|[.:] )So (?:a|an|the|it|its|they|no|each|one|any|you|every|in|that|do|does) `), "…, so …, or no So"},
	{"#", regexp.MustCompile(`^#+ (?:\d+\. )?(?:(?:What|Where|Why|Who|How|Not) .*|.*\?)$`), "a heading that names its subject"},
}

// refusedIn returns what docs/STYLE.md refuses in a text.
func refusedIn(text string) (all []string) {
	lower := strings.ToLower(text)
	for _, p := range patterns {
		if !strings.Contains(lower, p.letters) {
			continue
		}
		for _, found := range p.refused.FindAllString(text, -1) {
			all = append(all, fmt.Sprintf("%q: write %s", strings.TrimSpace(found), p.instead))
		}
	}
	return all
}

func TestTheLanguageThatIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"paused by somebody": 1, "Nobody can sign in.": 1, "the job is paused since 03:00": 1,
		"What is already so is not written again.": 1, "Done. What it did stays.": 1, `doc:"What it may do."`: 1,
		"all worker slots are taken, beside those that go on by hand": 4,
		"the job has been paused since 03:00":                         0, "What happens then?": 0, "a body that is sent": 0,
		"a body that is no object": 1, "a retry is no end": 1, "it is no longer there": 0, "there is no job": 0, "it is no job": 1,
		"Make a secret": 1, "makes a new key": 1, "made it work": 0, "It tells of trouble": 1, "however many there are": 1,
		"However, it is there": 0, "a test holds that": 1, "an alarm": 1, "alarms_test.go": 0, "recommend": 0, "it is mended": 1,
		"Done. So it is there.": 1, "done, so it is there": 0, "## How far is it?": 1, "## 5. Where it waits": 1, "## Fencing": 0,
		"`@reboot` has no equal": 1, "an equal share": 0, "Chosen anew.": 1, "AS anew,": 0,
	} {
		if got := refusedIn(text); len(got) != want {
			t.Errorf("%s: %q, want %d", text, got, want)
		}
	}
}

// The pages for readers, the strings of the product and the templates of its pages are in the language of
// docs/STYLE.md.
func TestTheLanguage(t *testing.T) {
	t.Parallel()
	read := 0
	check := func(at, text string) {
		read++
		for _, wrong := range refusedIn(text) {
			t.Errorf("%s: %s", at, wrong)
		}
	}
	for _, page := range Pages(t) {
		if page != "docs/STYLE.md" {
			checkLines(strings.ReplaceAll(withoutCode(t, page), "`anybody`", ""), page, check)
		}
	}
	for _, dir := range []string{".", "httpapi", "scheduler", "store", "internal/command", "internal/server"} {
		must(t, filepath.WalkDir(filepath.Join(Root, dir), func(path string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(Root, path)
			switch {
			case err != nil:
			case d.IsDir() && (d.Name() == "node_modules" || dir == "." && path != filepath.Join(Root, dir)):
				return fs.SkipDir
			case strings.HasSuffix(path, ".html"):
				checkLines(markup.ReplaceAllString(Read(t, name), " "), name, check)
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				checkStrings(t, path, name, check)
			}
			return err
		}))
	}
	if read < 5_000 {
		t.Errorf("%d lines and strings", read)
	}
}

// markup matches what visitors of a page do not see.
var markup = regexp.MustCompile(`\{\{[^}]*\}\}|<[^>]*>`)

func checkLines(text, name string, check func(at, text string)) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		check(fmt.Sprintf("%s:%d", name, n), strings.TrimSpace(line))
	}
}

// checkStrings checks the strings of a Go file. A string that is put together from several is one.
func checkStrings(t *testing.T, path, name string, check func(at, text string)) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	must(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, is := joined(e)
		if is && !slices.Contains(knownValues, text) {
			text = strings.NewReplacer(knownValues[1], "", knownValues[2], "").Replace(text)
			check(fmt.Sprintf("%s:%d", name, files.Position(e.Pos()).Line), text)
		}
		return !is
	})
}

// knownValues are values that the API, the database and Unix know.
var knownValues = []string{"anybody", "anybody,key,token", "anybody: ", "nobody"}

// joined returns the text of a string, or of a sum of strings.
func joined(e ast.Expr) (text string, is bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ = strconv.Unquote(e.Value) // a parsed literal is always valid
			return text, true
		}
	case *ast.BinaryExpr:
		left, one := joined(e.X)
		right, other := joined(e.Y)
		return left + right, one || other
	}
	return "", false
}
