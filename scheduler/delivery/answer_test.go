package delivery

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"punctual/scheduler/delivery/wire"
)

func TestReadBodySaysWhereItEnded(t *testing.T) {
	for limit, want := range map[int64]error{9: nil, 10: io.EOF, 11: io.EOF} {
		whole := io.NopCloser(&lastWithEOF{data: []byte("0123456789")})
		if _, _, err := readBody(whole, limit, 20); !errors.Is(err, want) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

// A lastWithEOF returns io.EOF with its last byte, as net/http's bodies of a known length do.
type lastWithEOF struct{ data []byte }

func (l *lastWithEOF) Read(p []byte) (int, error) {
	n := copy(p, l.data)
	if l.data = l.data[n:]; len(l.data) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name, value, date string
		want              time.Duration
	}{
		{"absent", "", "", 0},
		{"seconds", "120", "", 2 * time.Minute},
		{"seconds with spaces", " 5 ", "", 5 * time.Second},
		{"zero", "0", "", 0},
		{"negative", "-5", "", 0},
		{"signed", "+5", "", 0},
		{"fraction", "1.5", "", 2 * time.Second},
		{"small fraction", "0.01", "", time.Second},
		{"fraction without digits before it", ".5", "", time.Second},
		{"whole with a dot", "3.0", "", 3 * time.Second},
		{"two dots", "1.5.2", "", 0},
		{"a dot", ".", "", 0},
		{"a comma", "1,5", "", 0},
		{"an exponent", "1e3", "", 0},
		{"a century and a half second", "3153600000.5", "", maxRetryAfter},
		{"a century", "3153600000", "", maxRetryAfter},
		{"more than an integer holds", "99999999999999999999999", "", maxRetryAfter},
		{"garbage", "soon", "", 0},
		{"date", "Sun, 01 Mar 2026 12:01:00 GMT", "", time.Minute},
		{"date in the obsolete form", "Sunday, 01-Mar-26 12:01:00 GMT", "", time.Minute},
		{"past date", "Sun, 01 Mar 2026 11:00:00 GMT", "", 0},
		{"far date", "Sun, 01 Mar 2099 11:00:00 GMT", "", maxRetryAfter},
		{
			"date by a clock that is an hour fast",
			"Sun, 01 Mar 2026 13:01:00 GMT", "Sun, 01 Mar 2026 13:00:00 GMT", time.Minute,
		},
		{"date beside a garbled Date", "Sun, 01 Mar 2026 12:01:00 GMT", "yesterday", time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", test.value)
			h.Set("Date", test.date)
			if got := retryAfter(h, now); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestTheLogThatATargetNamesIsKeptOfEveryAnswer(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "none" {
			w.Header().Set(wire.LogHeader, "https://logs/"+r.URL.RawQuery)
		}
		if r.URL.RawQuery == "bad" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	c := newClient(t, Config{})
	long, nothing := strings.Repeat("x", wire.MaxURL+1), 0
	for _, test := range []struct {
		query string
		keep  *int
		want  string
		all   bool
	}{
		{"none", nil, "", false},
		{"good", nil, "https://logs/good", false},
		{"good", &nothing, "https://logs/good", false},
		{"bad", nil, "https://logs/bad", true},
		{long, nil, ("https://logs/" + long)[:wire.MaxURL+1], false},
	} {
		at := *u
		at.RawQuery = test.query
		r := post(&at)
		r.KeepBytes = test.keep
		kept := c.Send(t.Context(), r).Header
		if _, all := kept["date"]; kept[wire.KeptLog] != test.want || all != test.all || (kept == nil) != (test.want == "") {
			t.Errorf("%.10s: %.200v", test.query, kept)
		}
	}
}

// Many a target sends JSON and names no type, or that of a page.
func TestAResultIsTakenWhateverTheTypeOfTheAnswer(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{})
	const object = `{"result": {"rows": 7}}`
	for header, want := range map[string]string{
		"Content-Type: application/json\r\n": object, "Content-Type: text/html\r\n": "\n " + object, "": object,
		"Content-Type: application/vnd.api+json\r\n": object, "Content-Type: text/plain\r\n": `"result": 7`,
	} {
		r := post(listen(t, answering("HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s", header, len(want), want)))
		r.WantJSON = true
		if want[0] == '"' {
			want = "" // it is no object, and has no type that says that it is JSON
		}
		if got := string(c.Send(t.Context(), r).JSON); got != want {
			t.Errorf("%q: %q is taken, want %q", header, got, want)
		}
	}
}
