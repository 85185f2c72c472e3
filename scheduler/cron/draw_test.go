package cron

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// drawn is a random expression together with its meaning.
type drawn struct {
	text string
	oracle
}

// item is one part of a list: its text and its meaning.
type item struct {
	text  string
	match func(wall time.Time) bool
}

var (
	monthNames   = []string{"", "jan", "Feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "Mon", "TUE", "wed", "thu", "fri", "sat", "sun"}
)

// drawExpression draws any expression that [Parse] accepts. It prefers expressions that fire now and then.
func drawExpression(t *rapid.T) drawn {
	ofSecond := drawField(t, "second", 0, 59, nil, time.Time.Second)
	ofMinute := drawField(t, "minute", 0, 59, nil, time.Time.Minute)
	ofHour := drawField(t, "hour", 0, 23, nil, time.Time.Hour)
	if rapid.IntRange(0, 3).Draw(t, "every hour") == 0 {
		ofHour = rapid.SampledFrom([]item{
			{"*", always}, {"0-23", always}, {"*/1", always}, {"12-23,*", always},
		}).Draw(t, "hours")
	}
	ofMonth := item{"*", always}
	if rapid.IntRange(0, 4).Draw(t, "some months") == 0 {
		ofMonth = drawField(t, "month", 1, 12, monthNames, func(w time.Time) int { return int(w.Month()) })
	}
	ofDay, ofWeekday := item{"*", always}, item{rapid.SampledFrom([]string{"*", "?"}).Draw(t, "any"), always}
	days := rapid.IntRange(0, 5).Draw(t, "days")
	if days == 1 || days == 3 {
		ofDay = drawField(t, "day", 1, 31, nil, time.Time.Day)
	}
	if days == 2 || days == 3 {
		ofWeekday = drawField(t, "weekday", 0, 7, weekdayNames, func(w time.Time) int { return int(w.Weekday()) })
	}

	d := drawn{}
	texts := []string{ofMinute.text, ofHour.text, ofDay.text, ofMonth.text, ofWeekday.text}
	d.seconds = func(s int) bool { return s == 0 }
	if rapid.Bool().Draw(t, "six fields") {
		texts = append([]string{ofSecond.text}, texts...)
		d.seconds = func(s int) bool { return ofSecond.match(time.Unix(int64(s), 0).UTC()) }
	}
	d.text = strings.Join(texts, rapid.SampledFrom([]string{" ", "\t", "  "}).Draw(t, "space"))
	starred := strings.HasPrefix(ofDay.text, "*") || strings.ContainsAny(ofWeekday.text[:1], "*?")
	d.minutes = func(w time.Time) bool {
		if !ofMinute.match(w) || !ofHour.match(w) || !ofMonth.match(w) {
			return false
		}
		if starred {
			return ofDay.match(w) && ofWeekday.match(w)
		}
		return ofDay.match(w) || ofWeekday.match(w)
	}
	d.interval = true
	for h := range 24 {
		d.interval = d.interval && ofHour.match(time.Date(2000, 1, 1, h, 0, 0, 0, time.UTC))
	}
	return d
}

func always(time.Time) bool { return true }

func drawField(t *rapid.T, label string, lo, hi int, names []string, get func(time.Time) int) item {
	draw := func(t *rapid.T) item { return drawItem(t, lo, hi, names, get) }
	items := rapid.SliceOfN(rapid.Custom(draw), 1, 4).Draw(t, label)
	texts := make([]string, len(items))
	for i := range items {
		texts[i] = items[i].text
	}
	return item{strings.Join(texts, ","), func(w time.Time) bool {
		for i := range items {
			if items[i].match(w) {
				return true
			}
		}
		return false
	}}
}

func drawItem(t *rapid.T, lo, hi int, names []string, get func(time.Time) int) item {
	cycle := hi - lo + 1
	if hi == 7 {
		cycle = 7
	}
	write := func(n int) string {
		if names != nil && rapid.Bool().Draw(t, "named") {
			return names[n]
		}
		return fmt.Sprint(n)
	}
	in := func(a, b, step int) func(time.Time) bool {
		return func(w time.Time) bool {
			v := get(w)
			hit := v >= a && v <= b && (v-a)%step == 0
			if hi == 7 && v == 0 { // Sunday is both 0 and 7
				hit = hit || a <= 7 && b >= 7 && (7-a)%step == 0
			}
			return hit
		}
	}
	kinds := 5
	if hi == 31 || hi == 7 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		step := rapid.IntRange(1, cycle).Draw(t, "step")
		return item{fmt.Sprintf("*/%d", step), in(lo, lo+cycle-1, step)}
	case 1:
		a := rapid.IntRange(lo, hi).Draw(t, "from")
		step := rapid.IntRange(1, cycle).Draw(t, "step")
		if hi == 7 {
			return item{fmt.Sprintf("%s/%d", write(a), step), in(a%7, 6, step)}
		}
		return item{fmt.Sprintf("%s/%d", write(a), step), in(a, hi, step)}
	case 2, 3:
		a := rapid.IntRange(lo, hi).Draw(t, "from")
		b := rapid.IntRange(a, hi).Draw(t, "to")
		from, to, step, tail := write(a), write(b), 1, ""
		if hi == 7 && a == 7 {
			from, to = "7", "7" // by name, the range would be read as 0-0
		}
		if hi == 7 && a == 0 && b == 7 {
			to = "7"
		}
		if rapid.Bool().Draw(t, "stepped") {
			step = rapid.IntRange(1, cycle).Draw(t, "step")
			tail = fmt.Sprintf("/%d", step)
		}
		return item{from + "-" + to + tail, in(a, b, step)}
	case 4:
		n := rapid.IntRange(lo, hi).Draw(t, "value")
		return item{write(n), in(n, n, 1)}
	case 5:
		if hi == 31 {
			n := rapid.IntRange(-1, 30).Draw(t, "days before the last")
			switch n {
			case -1:
				return item{"LW", func(w time.Time) bool { return w.Day() == lastWorkingDay(w) }}
			case 0:
				return item{"L", func(w time.Time) bool { return w.AddDate(0, 0, 1).Day() == 1 }}
			}
			return item{fmt.Sprintf("L-%d", n), func(w time.Time) bool {
				return w.AddDate(0, 0, n).Month() == w.Month() && w.AddDate(0, 0, n+1).Day() == 1
			}}
		}
		n := rapid.IntRange(0, 7).Draw(t, "last")
		return item{write(n) + "L", func(w time.Time) bool {
			return int(w.Weekday()) == n%7 && w.AddDate(0, 0, 7).Month() != w.Month()
		}}
	default:
		if hi == 31 {
			n := rapid.IntRange(1, 31).Draw(t, "near")
			return item{fmt.Sprintf("%dW", n), func(w time.Time) bool { return w.Day() == nearby(w, n) }}
		}
		n, k := rapid.IntRange(0, 7).Draw(t, "weekday"), rapid.IntRange(1, 5).Draw(t, "nth")
		return item{fmt.Sprintf("%s#%d", write(n), k), func(w time.Time) bool {
			weeks := func(n int) time.Month { return w.AddDate(0, 0, -7*n).Month() }
			return int(w.Weekday()) == n%7 && weeks(k-1) == w.Month() && weeks(k) != w.Month()
		}}
	}
}

// nearby returns the working day closest to day n of the month of w, or 0 if the month has no day n.
func nearby(w time.Time, n int) int {
	best := 0
	if time.Date(w.Year(), w.Month(), n, 0, 0, 0, 0, time.UTC).Month() != w.Month() {
		return 0
	}
	for _, day := range []int{n - 2, n + 2, n - 1, n + 1, n} { // from the worst choice to the best
		d := time.Date(w.Year(), w.Month(), day, 0, 0, 0, 0, time.UTC)
		if d.Month() == w.Month() && d.Weekday() != time.Saturday && d.Weekday() != time.Sunday {
			best = day
		}
	}
	return best
}

// lastWorkingDay returns the last day from Monday to Friday of the month of w.
func lastWorkingDay(w time.Time) (last int) {
	for d := w.AddDate(0, 0, 1-w.Day()); d.Month() == w.Month(); d = d.AddDate(0, 0, 1) {
		if d.Weekday() != time.Saturday && d.Weekday() != time.Sunday {
			last = d.Day()
		}
	}
	return last
}
