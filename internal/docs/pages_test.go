package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// words are what may stand after a fence. Tests run or validate the first ones. A block that they cannot run has one of
// the others.
var (
	tried   = []string{"sh", "sql", "json", "yaml"}
	untried = []string{
		"text", "console", "go", "js", "python", "ruby", "haproxy", "nginx", "caddy", "toml", "ini", "promql", "http", "diff",
		"dockerfile", "make", "mermaid",
	}
)

// Every block says what it is, so none is left out by mistake.
func TestEveryBlockOfThePagesSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for _, page := range Pages(t) {
		for _, b := range Blocks(t, page) {
			if !slices.Contains(slices.Concat(tried, untried), b.Word) {
				t.Errorf("%s: the word after the fence is %q; want one of %s, which tests try, or of %s", b, b.Word,
					strings.Join(tried, ", "), strings.Join(untried, ", "))
			}
		}
	}
}

// A statement stands in a block, so that it is tried. One in the middle of a line was left behind by a change of the
// schema.
func TestNoStatementStandsInTheMiddleOfALine(t *testing.T) {
	t.Parallel()
	statement := regexp.MustCompile("`(SELECT|INSERT|UPDATE|DELETE) [^`]* punctual\\.[^`]*`")
	for _, page := range Pages(t) {
		if found := statement.FindString(Read(t, page)); found != "" {
			t.Errorf("%s: %s: write it as a block", page, found)
		}
	}
}

func TestBlocksOfAPage(t *testing.T) {
	t.Parallel()
	got := blocksOf("p.md", "a\n```sh\nb\n\nc\n```\n1. d\n   ```json\n   {\n     }\n   ```\n```\ne\n```\n")
	want := []Block{{"p.md", 3, "sh", "b\n\nc\n"}, {"p.md", 9, "json", "{\n  }\n"}, {"p.md", 13, "", "e\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
