//prove:other

package prove

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"punctual/internal/docs"
)

// A block of a page fails at its first command that fails, and the error says which.
//
// What it has set until then lives on.
func TestABlockThatFails(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(api.Close)
	sh := newShell(t)
	sh.give(t, map[string]string{"URL": api.URL})
	at := func(text string) docs.Block { return docs.Block{Page: "p.md", Line: 10, Word: "sh", Text: text} }
	for _, c := range []struct{ text, says string }{
		{"x=1\ncurl $URL/none\ntrue\n", "p.md:10: exit status 22\n|404 page not found|line 11: curl $URL/none: status 22"},
		{"false | true\n", "p.md:10: exit status 1"},
		{"echo $y\n", "unbound variable"},
		{"punctual frobnicate\n", "exit status 2"},
	} {
		err := sh.try(at(c.text))
		for _, part := range strings.Split(c.says, "|") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, want %q", c.text, err, part)
			}
		}
	}
	must(t, sh.try(at("test $x = 1\n")))
	sh.give(t, map[string]string{"URL": api.URL, "x": "2"})
	must(t, sh.try(at("test $x = 2; x=3\n")))
	sh.give(t, map[string]string{"URL": api.URL, "x": "2"})
	must(t, sh.try(at("test $x = 3\n")))
}
