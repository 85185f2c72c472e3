// Package docs reads the pages of the repository. Its tests check what they say, how, and where their links lead; and
// what the Makefile says of tests. The commands and programs of the pages run in the tests of package prove.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Root is the directory of the repository, from that of any package in internal.
const Root = "../.."

// Block is a fenced block of a page.
type Block struct {
	Page string // from the root of the repository
	Line int    // of its first line
	Word string // after the fence, such as sh
	Text string // without the indentation of the fence
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Read returns the text of a file, given by its path from the root of the repository.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Pages returns the pages of the repository, from its root: those that stand there, and all below docs.
func Pages(t testing.TB) []string {
	t.Helper()
	list, err := fs.Glob(os.DirFS(Root), "*.md")
	if err == nil {
		err = fs.WalkDir(os.DirFS(Root), "docs", func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				list = append(list, path)
			}
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Blocks returns the fenced blocks of a page.
func Blocks(t testing.TB, page string) []Block {
	t.Helper()
	return blocksOf(page, Read(t, page))
}

// Code returns the texts of the blocks of a page that are in a language.
func Code(t testing.TB, page, language string) (texts []string) {
	t.Helper()
	for _, b := range Blocks(t, page) {
		if b.Word == language {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

func blocksOf(page, text string) (list []Block) {
	var open *Block
	indent, n := "", 0
	for line := range strings.Lines(text) {
		n++
		word, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			indent = line[:strings.Index(line, "```")]
			open = &Block{Page: page, Line: n + 1, Word: word}
		case fence:
			list = append(list, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent)
		}
	}
	return list
}
