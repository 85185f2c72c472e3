package prove

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

// block is a fenced block of a page.
type block struct {
	page string // from the root of the repository
	line int    // of its first line
	word string // after the fence, such as sh
	text string // without the indentation of the fence
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// pages returns the pages of the repository, from its root: those that stand there, and all below docs.
func pages(t *testing.T) []string {
	t.Helper()
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	must(t, err)
	var list []string
	for _, page := range top {
		list = append(list, filepath.Base(page))
	}
	must(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			path, err = filepath.Rel(root, path)
			list = append(list, filepath.ToSlash(path))
		}
		return err
	}))
	return list
}

// blocks returns the fenced blocks of a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	return blocksOf(page, readFile(t, filepath.Join(root, page)))
}

func blocksOf(page, text string) (list []block) {
	var open *block
	indent, n := "", 0
	for line := range strings.Lines(text) {
		n++
		word, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			indent = line[:strings.Index(line, "```")]
			open = &block{page: page, line: n + 1, word: word}
		case fence:
			list = append(list, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent)
		}
	}
	return list
}

// codeBlocks returns the texts of the blocks of a page, given by its path from here, that are in a language.
func codeBlocks(t *testing.T, page, language string) (texts []string) {
	t.Helper()
	for _, b := range blocksOf(page, readFile(t, page)) {
		if b.word == language {
			texts = append(texts, b.text)
		}
	}
	return texts
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
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if !slices.Contains(slices.Concat(tried, untried), b.word) {
				t.Errorf("%s: the word after the fence is %q; want one of %s, which tests try, or of %s", b, b.word,
					strings.Join(tried, ", "), strings.Join(untried, ", "))
			}
		}
	}
}

func TestBlocksOfAPage(t *testing.T) {
	t.Parallel()
	got := blocksOf("p.md", "a\n```sh\nb\n\nc\n```\n1. d\n   ```json\n   {\n     }\n   ```\n```\ne\n```\n")
	want := []block{{"p.md", 3, "sh", "b\n\nc\n"}, {"p.md", 9, "json", "{\n  }\n"}, {"p.md", 13, "", "e\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
