package cron

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Dialects are the systems whose expressions [Translate] reads.
var Dialects = []string{"quartz", "spring", "kubernetes", "aws"}

// Translate returns the expression of this package that has the slots of an expression of another system.
//
//   - quartz: six fields with leading seconds, and a year that must be *. Days of the week count from 1, Sunday; L
//     alone is Saturday. Ranges may go on from the start of a field.
//   - spring: six fields with leading seconds. Both day fields must match.
//   - kubernetes: five fields. Either day field may match, unless one of them is * or ?; */2 is not *.
//   - aws: cron(minute hour day month weekday year), with or without cron( ); otherwise like quartz.
//
// The error is a [*SyntaxError], that of [Parse], or one that says why this package cannot say the same.
func Translate(dialect, expr string) (string, error) {
	text := strings.ToUpper(strings.TrimSpace(expr))
	if strings.HasPrefix(text, "@") {
		return expr, check(expr)
	}
	var t translator
	switch dialect {
	case "quartz":
		t.read(text, 6, true)
	case "aws":
		text, _ = strings.CutPrefix(text, "CRON(")
		t.read(strings.TrimSuffix(text, ")"), 5, true)
	case "spring":
		t.read(text, 6, false)
		t.both()
	case "kubernetes":
		t.read(text, 5, false)
		t.either()
	default:
		return "", fmt.Errorf("%q is not a dialect: write one of %s", dialect, strings.Join(Dialects, ", "))
	}
	if t.err != nil {
		return "", t.err
	}
	ours := strings.Join(t.fields, " ")
	return ours, check(ours)
}

func check(expr string) error {
	_, err := Parse(expr)
	return err
}

// translator holds the fields of an expression while they become those of this package.
type translator struct {
	fields []string // without a year
	wraps  bool     // ranges may go on from the start of a field
	err    error
}

func (t *translator) fail(field int, format string, args ...any) {
	if t.err != nil {
		return
	}
	name, value := "expression", strings.Join(t.fields, " ")
	if field >= 0 {
		name, value = specs[field].name, *t.at(field)
	}
	t.err = syntaxError(name, value, format, args...)
}

// at returns a field by its place among six.
func (t *translator) at(field int) *string { return &t.fields[field-6+len(t.fields)] }

// read splits a text of n fields, and translates each. With years, a year may follow, and weekdays count from Sunday.
func (t *translator) read(text string, n int, years bool) {
	t.fields, t.wraps = strings.Fields(text), years
	if years && len(t.fields) == n+1 {
		if year := t.fields[n]; year != "*" {
			t.fail(-1, "the year %s is not supported: starts_at and ends_at bound a schedule", quoted(year))
			return
		}
		t.fields = t.fields[:n]
	}
	if len(t.fields) != n {
		t.fail(-1, "it has %s, and this dialect has %d", count(len(t.fields)), n)
		return
	}
	if years && *t.at(dayOfWeek) == "L" {
		*t.at(dayOfWeek) = "SAT"
	}
	if day, weekday := *t.at(dayOfMonth), *t.at(dayOfWeek); years && !all(day) && !all(weekday) {
		t.fail(dayOfMonth, "this dialect refuses both day fields at once: one of them must be ?")
	} else if aws := years && n == 5; aws && day == "?" && weekday == "?" {
		t.fail(dayOfMonth, "this dialect refuses ? in both day fields: only one of them may be ?")
	}
	for field := 6 - n; field < 6; field++ {
		items := strings.Split(*t.at(field), ",")
		for i := range items {
			items[i] = t.item(field, items[i], years && field == dayOfWeek)
		}
		if *t.at(field) = strings.Join(items, ","); *t.at(field) == "?" && field >= dayOfMonth {
			*t.at(field) = "*"
		}
	}
}

func all(field string) bool { return field == "*" || field == "?" || field == "*/1" }

var (
	spanItem    = regexp.MustCompile(`^(\*|\d+|[A-Z]{3})?(?:-(\d+|[A-Z]{3}))?(?:/(\d+))?$`)
	weekdayItem = regexp.MustCompile(`^(\d)(L|#\d)$`)
)

// item translates an item of a field. A weekday of shifted ones counts from 1, Sunday, and gets its name.
func (t *translator) item(field int, item string, shifted bool) string {
	if found := weekdayItem.FindStringSubmatch(item); found != nil && shifted {
		return t.shift(found[1]) + found[2]
	}
	found := spanItem.FindStringSubmatch(item)
	if found == nil || item == "" {
		return item
	}
	spec := &specs[field]
	from, to, step := found[1], found[2], found[3]
	if from == "" { // /15
		from = "*"
	}
	if shifted {
		from, to = t.shift(from), t.shift(to)
	}
	lo, hi := valueOf(spec, from), valueOf(spec, to)
	by, _ := strconv.Atoi(step)
	wraps := t.wraps && hi >= spec.min && hi < lo && lo < spec.min+spec.cycle && to != "SUN"
	if to == "" || !wraps || step != "" && by < 1 {
		item = from
		if to != "" {
			item += "-" + to
		}
		if step != "" {
			item += "/" + step
		}
		return item
	}
	var list []string // a range that goes on from the start of the field
	for n := lo; n <= hi+spec.cycle; n += max(1, by) {
		value := (n-spec.min)%spec.cycle + spec.min
		if list = append(list, strconv.Itoa(value)); shifted {
			list[len(list)-1] = spec.names[value]
		}
	}
	return strings.Join(list, ",")
}

// shift names a day of the week that counts from 1, Sunday.
func (t *translator) shift(day string) string {
	n, ok := number(day)
	if !ok {
		return day
	}
	if n < 1 || n > 7 {
		t.fail(dayOfWeek, "%s is outside 1-7, which are Sunday to Saturday in this dialect", day)
		return day
	}
	return specs[dayOfWeek].names[n-1]
}

// valueOf returns the value of a number or a name; -1 if it is neither.
func valueOf(spec *fieldSpec, s string) int {
	if i := slices.Index(spec.names, s); i >= 0 {
		return spec.min + i
	}
	if n, ok := number(s); ok {
		return n
	}
	return -1
}

// either makes either day field match where Kubernetes does so: a field that is not * is restricted there, even if it
// starts with one.
func (t *translator) either() {
	if t.err != nil {
		return
	}
	for _, field := range []int{dayOfMonth, dayOfWeek} {
		text := t.at(field)
		day, _ := parseField(&specs[field], *text)
		special := day.lastWD || day.fromEnd|day.nearest|day.lastOf != 0 || day.nth != [6]uint8{}
		switch items := strings.Split(*text, ","); {
		case special, field == dayOfWeek && slices.Contains(strings.FieldsFunc(*text, isSeparator), "7"):
			t.fail(field, "Kubernetes has no such day")
		case slices.ContainsFunc(items, all):
			*text = "*"
		default:
			for i, item := range items {
				if step, ok := strings.CutPrefix(item, "*/"); ok {
					spec := specs[field]
					items[i] = fmt.Sprintf("%d-%d/%s", spec.min, spec.min+spec.cycle-1, step)
				}
			}
			*text = strings.Join(items, ",")
		}
	}
}

// isSeparator reports whether a rune stands between the values of a field. A step follows the values.
func isSeparator(r rune) bool { return r == ',' || r == '-' }

// both makes both day fields match, as Spring does. Here they do only where one of them starts with *, but the first to
// the fourth seven days of a month have one of each weekday.
func (t *translator) both() {
	if t.err != nil {
		return
	}
	day, weekday := t.at(dayOfMonth), t.at(dayOfWeek)
	if strings.HasPrefix(*day, "*") || strings.HasPrefix(*weekday, "*") {
		return
	}
	week := slices.Index([]string{"1-7", "8-14", "15-21", "22-28"}, *day) + 1
	f, err := parseField(&specs[dayOfWeek], *weekday)
	if week == 0 || err != nil || f.lastOf != 0 || f.nth != [6]uint8{} {
		t.fail(dayOfMonth, "both day fields must match in Spring, which has no form here: "+insteadOfBoth)
		return
	}
	var list []string
	for n := range each(f.plain) {
		list = append(list, fmt.Sprintf("%s#%d", specs[dayOfWeek].names[n], week))
	}
	*day, *weekday = "*", strings.Join(list, ",")
}
