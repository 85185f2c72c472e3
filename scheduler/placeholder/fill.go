package placeholder

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// Values are the values to fill in.
type Values struct {
	ScheduledFor time.Time
	Zone         *time.Location // of scheduled_for_local; nil: UTC
	Run          uuid.UUID
	Attempt      int
	Job          string            // name
	Texts        map[string]string // of a NewSet
}

// Place is where a text stands, which decides how values are escaped.
type Place int

// The places.
const (
	InText Place = iota // unescaped: header values and plain text
	InJSON              // within a JSON string
	InURL               // percent-encoded: path, query and forms
)

// Append appends the text with the values filled in.
func (t Template) Append(to []byte, v *Values, place Place) []byte {
	for _, p := range t.parts {
		to = append(to, p.literal...)
		if p.name == "" {
			continue
		}
		begin := len(to)
		to = p.append(to, v)
		if place != InText {
			to = place.escape(to, begin)
		}
	}
	return to
}

// Longest is the longest the text can become, in bytes, for a job whose name has the given length.
func (t Template) Longest(job int) (n int) {
	v := Values{
		ScheduledFor: time.Date(2199, 12, 31, 23, 59, 59, 999999000, time.UTC),
		Zone:         time.FixedZone("", -12*3600),
		Attempt:      100,
	}
	for _, p := range t.parts {
		n += len(p.literal)
		switch p.name {
		case "":
		case "job":
			n += job
		default:
			n += len(p.append(nil, &v)) + 4 // signs of offsets may be percent-encoded
		}
	}
	return n
}

func (p part) append(to []byte, v *Values) []byte {
	switch p.name {
	case "scheduled_for":
		return p.form.append(to, v.ScheduledFor.UTC())
	case "scheduled_for_local":
		return p.form.append(to, v.ScheduledFor.In(cmp.Or(v.Zone, time.UTC)))
	case "run":
		return append(to, v.Run.String()...)
	case "attempt":
		return strconv.AppendInt(to, int64(v.Attempt), 10)
	case "job":
		if v.Texts == nil {
			return append(to, v.Job...)
		}
	}
	return append(to, v.Texts[p.name]...)
}

// escape escapes what was appended since begin.
func (p Place) escape(to []byte, begin int) []byte {
	for i := begin; i < len(to); i++ {
		if p.safe(to[i]) {
			continue
		}
		value := string(to[i:])
		to = to[:i]
		for _, c := range []byte(value) {
			switch {
			case p.safe(c):
				to = append(to, c)
			case p == InURL:
				to = fmt.Appendf(to, "%%%02X", c)
			default:
				to = fmt.Appendf(to, `\u%04x`, c)
			}
		}
		return to
	}
	return to
}

// safe reports whether a byte stands for itself. The plus sign of an offset does not in a URL, where many read it as
// a space.
func (p Place) safe(c byte) bool {
	if p == InJSON {
		return c >= ' ' && c != '"' && c != '\\'
	}
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' ||
		c == '-' || c == '.' || c == '_' || c == '~' || c == ':'
}

// form is how an instant is written, as an index of forms; the zero value is RFC 3339, as in the header
// Punctual-Scheduled-For.
type form int

// forms are the forms by name. Those without a layout are numbers.
var forms = []struct{ name, layout string }{
	{"rfc3339", time.RFC3339Nano},
	{"date", time.DateOnly},
	{"time", time.TimeOnly},
	{"compact", "20060102T150405Z0700"},
	{"compact_date", "20060102"},
	{"year", "2006"},
	{"month", "01"},
	{"day", "02"},
	{"hour", "15"},
	{"minute", "04"},
	{"unix", ""},
	{"unix_ms", ""},
}

func formNames() (all []string) {
	for _, f := range forms {
		all = append(all, f.name)
	}
	return all
}

func (f form) append(to []byte, t time.Time) []byte {
	switch forms[f].name {
	case "unix":
		return strconv.AppendInt(to, t.Unix(), 10)
	case "unix_ms":
		return strconv.AppendInt(to, t.UnixMilli(), 10)
	}
	return t.AppendFormat(to, forms[f].layout)
}
