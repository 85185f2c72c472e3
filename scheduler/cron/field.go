package cron

import (
	"iter"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

// The six fields, in the order in which they are written.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
)

type fieldSpec struct {
	name     string
	min, max int
	cycle    int      // number of distinct values, and so the largest step that makes sense
	names    []string // names[i] stands for min+i
}

var specs = [...]fieldSpec{
	second:     {name: "second", min: 0, max: 59, cycle: 60},
	minute:     {name: "minute", min: 0, max: 59, cycle: 60},
	hour:       {name: "hour", min: 0, max: 23, cycle: 24},
	dayOfMonth: {name: "day of month", min: 1, max: 31, cycle: 31},
	month: {
		name: "month", min: 1, max: 12, cycle: 12,
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
	},
	dayOfWeek: {
		name: "day of week", min: 0, max: 7, cycle: 7,
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
	},
}

// values is what one field selects. Bit n of a mask stands for the value n.
type values struct {
	plain   uint64
	star    bool     // the field starts with * or is ?
	fromEnd uint64   // L and L-n, day of month only: n days before the last day
	lastWD  bool     // LW, day of month only: the last day from Monday to Friday
	nearest uint64   // nW, day of month only: the weekday nearest to day n
	lastOf  uint64   // nL, day of week only: the last such weekday of the month
	nth     [6]uint8 // n#k, day of week only: nth[k] is a mask of weekdays
}

// fields is what the six fields of an expression select.
type fields [6]values

// full reports whether every value of a field is selected.
func (f *fields) full(field int) bool { return bits.OnesCount64(f[field].plain) == specs[field].cycle }

// parseField reads one field of an upper-case expression.
func parseField(spec *fieldSpec, text string) (values, *SyntaxError) {
	p := fieldParser{spec: spec, text: text}
	p.out.star = text[0] == '*' || text == "?"
	for item := range strings.SplitSeq(text, ",") {
		p.item(item)
	}
	return p.out, p.err
}

// fieldParser keeps the first error of a field.
type fieldParser struct {
	spec *fieldSpec
	text string
	out  values
	err  *SyntaxError
}

func (p *fieldParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = syntaxError(p.spec.name, p.text, format, args...)
	}
}

func (p *fieldParser) item(item string) {
	switch {
	case item == "":
		p.fail("a list item is empty")
	case item == "?":
		p.questionMark()
	case p.foreign(item):
	case p.spec.max == 31 && p.specialDay(item):
	case p.spec.max == 7 && p.specialWeekday(item):
	default:
		p.span(item)
	}
}

// anyValue matches H, the hash of Jenkins, and R, the random value of croniter: H, H/15, H(0-29)/10.
var anyValue = regexp.MustCompile(`^[HR](\(\d+-\d+\))?(/\d+)?$`)

// foreign refuses an item that another system has. It reports whether the item was one.
func (p *fieldParser) foreign(item string) bool {
	day, nth, numbered := strings.Cut(item, "#")
	back, fromEnd := number(strings.TrimPrefix(item, "-"))
	switch {
	case anyValue.MatchString(item):
		system := map[byte]string{'H': "Jenkins's", 'R': "croniter's"}[item[0]]
		p.fail("%c is %s; write a number, and let jitter spread the jobs", item[0], system)
	case item == "$" && p.spec.max == 31:
		p.fail("$ is pg_cron's; write L for the last day of the month")
	case (item == "LAST" || item == "-1") && p.spec.max == 31:
		p.fail("write L for the last day of the month")
	case item[0] == '-' && fromEnd && back > 1 && back <= 31 && p.spec.max == 31:
		p.fail("write L-%d, as L is the last day of the month and L-1 the day before it", back-1)
	case item[0] == 'W' && p.spec.max == 31 && isNumber(item[1:]):
		p.fail("write %sW for the weekday nearest to day %s", item[1:], item[1:])
	case item[0] == 'L' && p.spec.max == 7 && isNumber(item[1:]):
		p.fail("write %sL for the last such weekday of the month", item[1:])
	case numbered && strings.Contains(day, "-") && p.spec.max == 7:
		p.fail("# follows one weekday; write each of them, as in THU#2,FRI#2 or THUL,FRIL")
	case item[0] == '+' && p.spec.max == 7:
		p.fail("the + is croner's: both day fields must match, which has no form here; " + insteadOfBoth)
	case (nth == "L" || nth == "LAST" || nth == "-1") && p.spec.max == 7:
		p.fail("write %sL for the last such weekday of the month", day)
	default:
		return false
	}
	return true
}

// insteadOfBoth says how to write the days for which people combine both day fields.
const insteadOfBoth = "use day of week FRI#2 for the second Friday, FRIL for the last, or let the target check the day"

func isNumber(s string) bool {
	_, ok := number(s)
	return ok
}

func (p *fieldParser) questionMark() {
	switch {
	case p.spec.max != 31 && p.spec.max != 7:
		p.fail("? is only for the two day fields; use *")
	case p.text != "?":
		p.fail("? cannot be part of a list")
	default:
		p.out.plain |= p.mask(p.spec.min, p.spec.max, 1)
	}
}

// span reads *, n, n-m, and each of them with a /step.
func (p *fieldParser) span(item string) {
	body, stepText, stepped := strings.Cut(item, "/")
	step := 1
	if stepped {
		n, ok := number(stepText)
		if ok && n > p.spec.cycle {
			p.fail("the step %s is outside 1-%d; a longer period is an every schedule", quoted(stepText), p.spec.cycle)
			return
		}
		if !ok || n < 1 {
			p.fail("the step %s is outside 1-%d", quoted(stepText), p.spec.cycle)
			return
		}
		step = n
	}
	if body == "" && stepped {
		p.fail("write */%s", stepText)
		return
	}
	if body == "*" {
		p.out.plain |= p.mask(p.spec.min, p.spec.max, step)
		return
	}
	from, to, ranged := strings.Cut(body, "-")
	if ranged && (from == "" || to == "") {
		p.fail("the range %s lacks an end", quoted(body))
		return
	}
	lo, ok := p.value(from)
	if !ok {
		return
	}
	hi := lo
	switch {
	case ranged:
		if hi, ok = p.value(to); !ok {
			return
		}
		if to == "SUN" && lo > 0 {
			hi = 7 // FRI-SUN can only mean one thing
		}
		if hi < lo {
			p.wraps(body, from, to, lo, hi, stepped)
			return
		}
	case stepped: // n/step runs from n to the end of the field
		if lo == 7 && p.spec.max == 7 {
			lo = 0
		}
		hi = p.spec.min + p.spec.cycle - 1
	}
	p.out.plain |= p.mask(lo, hi, step)
}

// wraps refuses a range that goes on from the start of the field, and says how to write it as two.
func (p *fieldParser) wraps(body, from, to string, lo, hi int, stepped bool) {
	const reason = "the range %s ends before it starts; "
	if stepped {
		p.fail(reason+"write a list of the values", quoted(body))
		return
	}
	first, last := p.spec.min, p.spec.min+p.spec.cycle-1
	named := p.spec.names != nil && !isNumber(from) && !isNumber(to)
	two := p.written(first, hi, named)
	if lo <= last { // 7-2 is 0-2
		two = p.written(lo, last, named) + "," + two
	}
	p.fail(reason+"write %s", quoted(body), two)
}

// written writes a range, or one value, with names or numbers.
func (p *fieldParser) written(lo, hi int, named bool) string {
	value := func(n int) string {
		if named {
			return p.spec.names[n-p.spec.min]
		}
		return strconv.Itoa(n)
	}
	if lo == hi {
		return value(lo)
	}
	return value(lo) + "-" + value(hi)
}

// mask has the bits lo, lo+step … hi. Sunday is always bit 0.
func (p *fieldParser) mask(lo, hi, step int) (m uint64) {
	for n := lo; n <= hi; n += step {
		if n == 7 && p.spec.max == 7 {
			m |= 1
			continue
		}
		m |= 1 << n
	}
	return m
}

// value reads one number or name.
func (p *fieldParser) value(s string) (n int, ok bool) {
	switch n = valueOf(p.spec, s); {
	case n < 0 && p.spec.names != nil:
		hint := ""
		if short := shortName(p.spec, s); short != "" {
			hint = "; write " + short
		}
		p.fail("%s is neither a number from %d to %d nor a name from %s to %s%s", quoted(s), p.spec.min, p.spec.max,
			p.spec.names[0], p.spec.names[len(p.spec.names)-1], hint)
	case n < 0:
		p.fail("%s is not a number from %d to %d", quoted(s), p.spec.min, p.spec.max)
	case n < p.spec.min || n > p.spec.max:
		p.fail("%s is outside %d-%d", s, p.spec.min, p.spec.max)
	default:
		return n, true
	}
	return 0, false
}

// specialDay reads L, L-n, LW and nW. It reports whether the item was one, right or wrong.
func (p *fieldParser) specialDay(item string) bool {
	before, fromEnd := strings.CutPrefix(item, "L-")
	day, nearest := strings.CutSuffix(item, "W")
	switch n, ok := number(before); {
	case item == "L":
		p.out.fromEnd |= 1
	case item == "LW":
		p.out.lastWD = true
	case item == "WL":
		p.fail("write LW for the last weekday of the month")
	case fromEnd && ok && n >= 1 && n <= 30:
		p.out.fromEnd |= 1 << n
	case fromEnd:
		p.fail("L- is followed by 1 to 30 and nothing else, as in L-2 for two days before the last")
	case nearest:
		p.nearest(day)
	default:
		return false
	}
	return true
}

func (p *fieldParser) nearest(day string) {
	if n, ok := number(day); ok && n >= 1 && n <= 31 {
		p.out.nearest |= 1 << n
	} else {
		p.fail("W follows one day from 1 to 31, as in 15W, or L, as in LW")
	}
}

// specialWeekday reads nL and n#k. It reports whether the item was one, right or wrong.
func (p *fieldParser) specialWeekday(item string) bool {
	if day, nth, ok := strings.Cut(item, "#"); ok {
		n, ok := p.value(day)
		if !ok {
			return true
		}
		k, ok := number(nth)
		if !ok || k < 1 || k > 5 {
			p.fail("# is followed by 1 to 5, as in FRI#2 for the second Friday")
			return true
		}
		p.out.nth[k] |= 1 << (n % 7)
		return true
	}
	if item == "L" {
		p.fail("L follows a weekday here, as in 5L for the last Friday; Quartz's L alone is SAT")
		return true
	}
	day, ok := strings.CutSuffix(item, "L")
	if !ok || valueOf(p.spec, day) < 0 { // JUL is no last JU
		return false
	}
	if n, ok := p.value(day); ok {
		p.out.lastOf |= 1 << (n % 7)
	}
	return true
}

// number reads up to four digits and nothing else: ParseUint takes no sign and no space.
func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && len(s) <= 4
}

// each yields the values of a mask.
func each(mask uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; mask != 0; mask &= mask - 1 {
			if !yield(bits.TrailingZeros64(mask)) {
				return
			}
		}
	}
}

// runsOf yields the first and last value of every run of neighbours in a mask.
func runsOf(mask uint64) iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for mask != 0 {
			lo := bits.TrailingZeros64(mask)
			hi := lo + bits.TrailingZeros64(^(mask >> lo)) - 1
			mask &^= 1<<(hi+1) - 1<<lo
			if !yield(lo, hi) {
				return
			}
		}
	}
}
