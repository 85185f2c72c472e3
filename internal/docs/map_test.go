package docs

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/llms.txt, the links of the guide and the list of faults again")

//go:generate go test . -run Written -args -update

const mapPage = "docs/README.md"

// written compares a file with what it should have in it, or writes that.
func written(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(filepath.Join(Root, file), []byte(want), 0o644))
		return
	}
	if Read(t, file) != want {
		t.Errorf("%s differs; go test ./internal/docs -run Written -args -update writes it again", file)
	}
}

var (
	guided   = regexp.MustCompile(`(?m)^\d+\. \[([^\]]+)\]\(([\w-]+\.md)\)$`)
	neighbor = regexp.MustCompile(`(?m)\n+^(?:Previous|Next): \[.*\n\z`)
)

// Each page of the guide ends with links to the pages before and after it.
func TestTheLinksOfTheGuideAreWritten(t *testing.T) {
	_, guide, _ := strings.Cut(Read(t, mapPage), "\n## Guide\n")
	pages := guided.FindAllStringSubmatch(guide, -1)
	if len(pages) < 20 {
		t.Fatalf("%s lists %d pages", mapPage, len(pages))
	}
	link := func(word string, page []string) string { return fmt.Sprintf("%s: [%s](%s)", word, page[1], page[2]) }
	for i, page := range pages {
		var links []string
		if i > 0 {
			links = append(links, link("Previous", pages[i-1]))
		}
		if i < len(pages)-1 {
			links = append(links, link("Next", pages[i+1]))
		}
		file := "docs/" + page[2]
		text := neighbor.ReplaceAllString(strings.TrimRight(Read(t, file), "\n")+"\n", "")
		written(t, file, strings.TrimRight(text, "\n")+"\n\n"+strings.Join(links, ". ")+".\n")
	}
}

// The map leads to each page of docs, by itself or by the README of a directory.
func TestTheMapLeadsToEachPage(t *testing.T) {
	t.Parallel()
	linked := map[string]bool{mapPage: true, "docs/STYLE.md": true} // for those who write pages
	for _, from := range []string{mapPage, "docs/reference/README.md", "docs/security/README.md", "docs/internals/README.md"} {
		for _, link := range pageLink.FindAllStringSubmatch(withoutCode(t, from), -1) {
			linked[path.Join(path.Dir(from), link[1])] = true
		}
	}
	for _, page := range Pages(t) {
		if strings.HasPrefix(page, "docs/") && !linked[page] {
			t.Errorf("%s leads to no link to %s", mapPage, page)
		}
	}
}

// docs/llms.txt lists the pages, with their titles and first sentences, in the form of llmstxt.org.
func TestTheListForProgramsIsWritten(t *testing.T) {
	text := "# Punctual\n\n> Cron for HTTP endpoints, on the Postgres you already run: schedules, retries, and a record of every run.\n" +
		"\nEach page is Markdown. A replica describes its API at /openapi.json (OpenAPI 3.1) and /openapi-3.0.json.\n"
	for _, section := range []struct{ title, dir string }{
		{"Guide", "docs"}, {"Reference", "docs/reference"}, {"Security", "docs/security"}, {"Optional", "docs/internals"},
	} {
		text += "\n## " + section.title + "\n\n"
		for _, page := range slices.Sorted(slices.Values(Pages(t))) {
			if path.Dir(page) == section.dir && path.Base(page) != "STYLE.md" {
				title, about := described(t, page)
				text += fmt.Sprintf("- [%s](%s): %s\n", title, strings.TrimPrefix(page, "docs/"), about)
			}
		}
	}
	written(t, "docs/llms.txt", text)
}

var (
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	paragraph = regexp.MustCompile(`(?m)(?:^[^\s#|!<-][^\n]*\n)+`)
	sentence  = regexp.MustCompile(`^.*?[.?](?: |$)`)
)

// described returns the title of a page, and its first sentence.
func described(t *testing.T, page string) (title, about string) {
	t.Helper()
	text := withoutCode(t, page)
	title = heading.FindStringSubmatch(text)[1]
	about = strings.Join(strings.Fields(linkText.ReplaceAllString(paragraph.FindString(text), "$1")), " ")
	if first := sentence.FindString(about); first != "" {
		about = strings.TrimSpace(first)
	}
	return title, strings.ReplaceAll(about, "**", "")
}
