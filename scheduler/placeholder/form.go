package placeholder

import (
	"strconv"
	"time"
)

// form is how an instant is written; the zero value is RFC 3339, as in the header Punctual-Scheduled-For.
type form int

const (
	formRFC3339 form = iota
	formUnix
	formUnixMs
	formLayout // and the forms after it, by their index in layouts
)

// layouts are the forms made of digits of the calendar and the clock.
var layouts = []struct{ name, layout string }{
	{"date", time.DateOnly},
	{"time", time.TimeOnly},
	{"compact", "20060102T150405Z0700"},
	{"compact_date", "20060102"},
	{"year", "2006"},
	{"month", "01"},
	{"day", "02"},
	{"hour", "15"},
	{"minute", "04"},
}

func formOf(name string) (form, bool) {
	switch name {
	case "rfc3339":
		return formRFC3339, true
	case "unix":
		return formUnix, true
	case "unix_ms":
		return formUnixMs, true
	}
	for i, l := range layouts {
		if l.name == name {
			return formLayout + form(i), true
		}
	}
	return 0, false
}

func formNames() []string {
	all := []string{"rfc3339"}
	for _, l := range layouts {
		all = append(all, l.name)
	}
	return append(all, "unix", "unix_ms")
}

func (f form) append(to []byte, t time.Time) []byte {
	switch {
	case f == formUnix:
		return strconv.AppendInt(to, t.Unix(), 10)
	case f == formUnixMs:
		return strconv.AppendInt(to, t.UnixMilli(), 10)
	case f >= formLayout:
		return t.AppendFormat(to, layouts[f-formLayout].layout)
	}
	return t.AppendFormat(to, time.RFC3339Nano)
}
