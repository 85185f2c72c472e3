package credential

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"punctual/scheduler/domain"
)

// receivingPage returns the page for those who write receivers.
func receivingPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/receiving.md")
	must(t, err)
	return string(page)
}

// The table of headers has those that every request carries, and those of late runs and of long work.
func TestTheHeadersOfTheDocsAreThoseThatAreSent(t *testing.T) {
	t.Parallel()
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w-]+)` \\| (\\w+) \\|").FindAllStringSubmatch(receivingPage(t), -1) {
		documented[row[2]] = append(documented[row[2]], http.CanonicalHeaderKey(row[1]))
	}
	got := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(server.Close)
	// Those of every HTTP request are told of in the text.
	said := append([]string{"User-Agent", "Content-Length", "Content-Type"}, documented["always"]...)
	for when, change := range map[string]func(*domain.Assignment){
		"always": func(*domain.Assignment) {},
		"late":   func(a *domain.Assignment) { a.Late = true },
		"caused": func(a *domain.Assignment) { a.CausedBy = uuid.New() },
		"event":  func(a *domain.Assignment) { a.Event = "invoice.paid" },
		"async": func(a *domain.Assignment) {
			a.Job = compiled(t, `{"name":"job","completion":"async","target":{"url":"`+server.URL+`","body":{"n":1}}}`)
			a.RunToken = "prt_x"
		},
	} {
		s, _ := sender(t, nil)
		a := with(t, server.URL, `"auth":{"type":"none"}`)
		change(&a)
		s.try(t, a)
		want := said
		if when != "always" {
			want = slices.Concat(said, documented[when])
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(<-got))); diff != "" {
			t.Errorf("%s (-documented +sent):\n%s", when, diff)
		}
	}
	if len(documented) != 5 {
		t.Errorf("documented are %v", documented)
	}
}

func TestTheTestVectorOfTheDocsIsRight(t *testing.T) {
	t.Parallel()
	vector := regexp.MustCompile(
		`(?s)\nSECRET=(\S+)\nID=(\S+) AT=(\d+) BODY='([^']*)'\n.*\ntest "v1,\$\(sign\)" = (\S+)\n`,
	).FindStringSubmatch(receivingPage(t))
	if vector == nil {
		t.Fatal("the page has no test vector")
	}
	key, err := NewSigningKey(vector[1], time.Time{})
	must(t, err)
	if got := key.sign(vector[2], vector[3], []byte(vector[4])); got != vector[5] {
		t.Errorf("the signature is %s, not %s", got, vector[5])
	}
}
