package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/cron"
	"punctual/scheduler/jobspec"
)

// clock is the time zone in which a visitor reads and writes times. The visitor's browser tells its zone in a cookie,
// and the visitor chooses between it, UTC and the zone of the job that a page is about. Without the cookie it is UTC.
type clock struct {
	Kind  string // local, utc or job
	Local string // the browser's zone; empty: it has not told a zone that is known here
	Job   string // the zone of the page's job; empty: it is about no job
	Named string // the browser's zone as it told it, known or not
}

// zoneCookie holds the kind of the clock and the browser's zone, such as local:Europe/Berlin. A script writes it.
const zoneCookie = "zone"

func (v *visit) clock() clock {
	c := clock{Kind: "utc", Job: v.zoneOfJob}
	cookie, err := v.r.Cookie(zoneCookie)
	if err != nil {
		return c
	}
	text, _ := url.QueryUnescape(cookie.Value)
	kind, zone, _ := strings.Cut(text, ":")
	if c.Named = zone; zone != "" {
		if _, err := cron.LoadZone(zone); err == nil {
			c.Local = zone
		}
	}
	if kind == "job" || kind == "local" && c.Local != "" && c.Local != "UTC" {
		c.Kind = kind
	}
	return c
}

// Zone is the zone of the clock.
func (c clock) Zone() string {
	switch c.Kind {
	case "local":
		return c.Local
	case "job":
		return cmp.Or(c.Job, "UTC")
	}
	return "UTC"
}

// Place names the browser's zone in short: Berlin.
func (c clock) Place() string { return place(c.Local) }

func place(zone string) string {
	return strings.ReplaceAll(zone[strings.LastIndexByte(zone, '/')+1:], "_", " ")
}

// setClock changes which clock the visitor reads.
func (v *visit) setClock() error {
	kind := v.field("clock")
	if kind != "local" && kind != "job" {
		kind = "utc"
	}
	const year = 365 * 24 * 60 * 60
	http.SetCookie(v.w, &http.Cookie{ //nolint:gosec // the script writes it, too, and links from elsewhere bring it along
		Name: zoneCookie, Value: url.QueryEscape(kind + ":" + v.clock().Local), Path: "/", MaxAge: year, Secure: v.Secure,
		SameSite: http.SameSiteLaxMode,
	})
	return v.to(local(v.field("next")), "")
}

// located reads the zone that a form sent beside its times. Without it, they are in the visitor's zone.
func (v *visit) located(field func(string) string) *time.Location {
	zone, err := cron.LoadZone(cmp.Or(field("zone"), v.clock().Zone()))
	if err != nil {
		return time.UTC
	}
	return zone
}

// instant returns an instant of the form: one without an offset is in the zone of the form. What is no time stays as
// it was written: the API says what is wrong with it.
func (v *visit) instant(field string) (at jobspec.Instant) {
	if text := v.field(field); text != "" {
		_ = at.UnmarshalText([]byte(instantIn(text, v.located(v.field)))) // it never fails
	}
	return at
}

// instantIn adds what is missing to a time from a form's field. A time that daylight saving skips moves forward, and
// one that comes twice is the first.
func instantIn(text string, zone *time.Location) string {
	if wall, ok := wallOf(text); ok {
		return cron.Local(wall, zone).At.UTC().Format(time.RFC3339Nano)
	}
	return text
}

// wallForms are the ways to write a date and a time without an offset.
var wallForms = []string{
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "02.01.2006 15:04:05",
	"02.01.2006 15:04", "2.1.2006 15:04",
}

// wallOf reads a date and a time without an offset, as though it were UTC.
func wallOf(text string) (time.Time, bool) {
	for _, form := range wallForms {
		if wall, err := time.Parse(form, text); err == nil {
			return wall, true
		}
	}
	return time.Time{}, false
}

// A page is rendered with marks in place of times, as the functions of the templates do not know the visitor; told
// writes the times in their place. A mark that a visitor forges is a time, and nothing else.
var marks = regexp.MustCompile("\uE000(-?[0-9]{1,18});([a-z]+);([A-Za-z0-9_+/-]*)\uE001")

// markForms are how a mark shows its time.
var markForms = map[string]string{
	"time": "2006-01-02 15:04:05", "axis": "01-02 15:04", "scale": "15:04",
}

// mark returns a mark of an instant. zone is that of a job, for tooltips.
func mark(at time.Time, form, zone string) string {
	return fmt.Sprintf("\uE000%d;%s;%s\uE001", at.UnixMicro(), form, zone)
}

// told replaces the marks of a page by times of the visitor's clock.
func (c clock) told(page []byte) []byte {
	zone, err := cron.LoadZone(c.Zone())
	if err != nil {
		zone = time.UTC
	}
	return marks.ReplaceAllFunc(page, func(found []byte) []byte {
		m := marks.FindSubmatch(found)
		micros, _ := strconv.ParseInt(string(m[1]), 10, 64)
		at, form, ofJob := time.UnixMicro(micros), string(m[2]), string(m[3])
		if form == "place" {
			return []byte(place(c.Zone()))
		}
		if form == "others" {
			return []byte(c.others(at, ofJob))
		}
		text := at.In(zone).Format(cmp.Or(markForms[form], markForms["time"]))
		if form == "time" && twice(at.In(zone)) {
			text += at.In(zone).Format(" -07:00")
		}
		return []byte(text)
	})
}

// others says an instant in the zones in which the page does not show it.
func (c clock) others(at time.Time, ofJob string) string {
	var all []string
	for _, name := range []string{"UTC", cmp.Or(ofJob, c.Job), c.Local} {
		zone, err := cron.LoadZone(name)
		if name == "" || name == c.Zone() || err != nil || len(all) > 0 && strings.HasSuffix(all[len(all)-1], " "+name) {
			continue
		}
		all = append(all, at.In(zone).Format("2006-01-02 15:04:05 ")+name)
	}
	return strings.Join(all, "\n")
}

// twice reports whether the clock of a zone shows the time of an instant twice, as where summer time ends.
func twice(at time.Time) bool {
	_, now := at.Zone()
	for _, d := range []time.Duration{-time.Hour, time.Hour} {
		if _, then := at.Add(d).Zone(); time.Duration(now-then)*time.Second == d {
			return true
		}
	}
	return false
}

// when shows an instant in the visitor's zone, and in the others on hover. zone is that of a job.
func when(at any, zone ...string) template.HTML {
	t := moment(at)
	if t.IsZero() {
		return `<span class="none">–</span>`
	}
	ofJob := strings.Join(zone, "")
	return template.HTML(fmt.Sprintf( //nolint:gosec // a mark becomes a time, and names of zones need no escapes
		`<time datetime="%s" title="%s">%s</time>`, t.UTC().Format(time.RFC3339Nano), mark(t, "others", ofJob),
		mark(t, "time", "")))
}
