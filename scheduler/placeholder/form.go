package placeholder

import (
	"strconv"
	"time"
)

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
