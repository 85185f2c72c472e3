package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	lru "github.com/hashicorp/golang-lru/v2"
)

const maxLength = 256

// macros are the abbreviations of Vixie cron. gronx knows others and lacks @midnight, so it never sees them.
var macros = map[string]string{
	"@YEARLY":   "0 0 1 1 *",
	"@ANNUALLY": "0 0 1 1 *",
	"@MONTHLY":  "0 0 1 * *",
	"@WEEKLY":   "0 0 * * 0",
	"@DAILY":    "0 0 * * *",
	"@MIDNIGHT": "0 0 * * *",
	"@HOURLY":   "0 * * * *",
}

// Expression is a validated cron expression. It is immutable and safe for concurrent use.
type Expression struct {
	source    string // as written
	text      string // canonical: two expressions with equal texts are the same
	calendar  calendar
	interval  bool // the hour field matches all 24 hours: see the package documentation
	subMinute bool
	firstTime int64 // first and last second of a day at which it can fire
	lastTime  int64

	hours, minutes, seconds uint64 // bit n stands for the value n
}

// Parse validates and compiles an expression of five fields (minute, hour, day of month, month, day of week), or six
// with leading seconds, or one of the @ abbreviations. Letters may be in either case.
//
// Its error is a [*SyntaxError], or one for each field that is wrong, joined. An expression that can never fire, such
// as "0 0 30 2 *", is an error.
func Parse(expr string) (*Expression, error) {
	p, err := parse(expr)
	if err != nil {
		return nil, err
	}
	return p.Expression, nil
}

// parsed is a valid expression with the texts of its six fields and what they mean.
type parsed struct {
	*Expression
	texts  []string
	fields fields
}

// recent has the expressions that were parsed of late. A job that is written needs its own several times, and many jobs
// share one.
var recent, _ = lru.New[string, *parsed](1024) // fails only for a size that is not positive

// parse is Parse, and returns what the parts of the expression are, too.
func parse(expr string) (*parsed, error) {
	if p, found := recent.Get(expr); found {
		return p, nil
	}
	p, err := parseAnew(expr)
	if err == nil {
		recent.Add(p.source, p)
	}
	return p, err
}

func parseAnew(expr string) (*parsed, error) {
	texts, err := split(expr)
	if err != nil {
		return nil, err
	}
	p := &parsed{texts: texts}
	var errs []error
	for i := range p.fields {
		var fieldErr *SyntaxError
		if p.fields[i], fieldErr = parseField(&specs[i], texts[i]); fieldErr != nil {
			errs = append(errs, fieldErr)
			if i == dayOfWeek && secondsLast(expr, texts) {
				fieldErr.Reason += "; the first of six fields is the second, which croniter has last"
			}
		}
	}
	if err = errors.Join(errs...); err == nil {
		p.Expression, err = compile(expr, texts, &p.fields)
	}
	return p, err
}

// secondsLast reports whether an expression of six fields is valid with the second behind the others, as in croniter.
func secondsLast(expr string, texts []string) bool {
	if len(strings.Fields(expr)) != len(specs) {
		return false
	}
	for i, text := range texts {
		if _, err := parseField(&specs[(i+1)%len(specs)], text); err != nil {
			return false
		}
	}
	return true
}

// MustParse is like [Parse] but panics on an error. It is for expressions written in source code.
func MustParse(expr string) *Expression {
	e, err := Parse(expr)
	if err != nil {
		panic("cron: " + err.Error())
	}
	return e
}

// split finds the six upper-case fields of an expression.
func split(expr string) ([]string, error) {
	if len(expr) > maxLength {
		return nil, syntaxError("expression", expr, "it is %d bytes long; at most %d are allowed", len(expr), maxLength)
	}
	for i := range len(expr) {
		if c := expr[i]; c != '\t' && (c < ' ' || c > '~') {
			return nil, syntaxError("expression", expr, "byte %d is not printable ASCII", i+1)
		}
	}
	upper := strings.ToUpper(expr)
	texts := strings.Fields(upper)
	if len(texts) > 0 && texts[0][0] == '@' {
		whole, ok := macros[strings.Join(texts, " ")]
		if !ok && beforeCommand(texts) > 0 {
			return nil, syntaxError("expression", expr, "a command does not belong here; write the word before it")
		}
		if !ok {
			return nil, syntaxError("expression", expr, "%s", macroReason(texts[0]))
		}
		texts = strings.Fields(whole)
	}
	if len(texts) > 0 {
		if reason := foreignForm(expr, texts); reason != "" {
			return nil, syntaxError("expression", expr, "%s", reason)
		}
	}
	switch len(texts) {
	case 5:
		texts = append([]string{"0"}, texts...)
	case 6:
	case 0:
		return nil, syntaxError("expression", expr, "it is empty; %s", fiveFields)
	default:
		return nil, syntaxError("expression", expr, "it has %s; %s", count(len(texts)), fiveFields)
	}
	return texts, nil
}

const fiveFields = "want 5: minute, hour, day of month, month, day of week; or 6 with leading seconds"

func count(fields int) string {
	if fields == 1 {
		return "1 field"
	}
	return strconv.Itoa(fields) + " fields"
}

func macroReason(macro string) string {
	switch macro {
	case "@EVERY":
		return "@every is not a cron expression; use an \"every\" schedule"
	case "@ONCE":
		return "a job without a schedule runs only when it is triggered"
	case "@REBOOT", "@RESTART":
		return strings.ToLower(macro) + " has no meaning here: nothing reboots; trigger the job instead"
	default:
		return "want one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"
	}
}

func compile(expr string, texts []string, f *fields) (*Expression, error) {
	e := &Expression{
		source:    expr,
		text:      canonical(f),
		calendar:  newCalendar(&f[dayOfMonth], &f[month], &f[dayOfWeek]),
		interval:  f.full(hour),
		subMinute: bits.OnesCount64(f[second].plain) > 1,
		hours:     f[hour].plain, minutes: f[minute].plain, seconds: f[second].plain,
	}
	for _, i := range []int{hour, minute, second} {
		e.firstTime = e.firstTime*60 + int64(bits.TrailingZeros64(f[i].plain))
		e.lastTime = e.lastTime*60 + int64(bits.Len64(f[i].plain)) - 1
	}
	if !e.calendar.possible() {
		return nil, impossible(texts, f)
	}
	return e, nil
}

// impossible names the field that keeps a well-formed expression from ever firing.
func impossible(texts []string, f *fields) *SyntaxError {
	anyDay := values{star: true, plain: 0x7f}
	withoutWeekday := newCalendar(&f[dayOfMonth], &f[month], &anyDay)
	if !withoutWeekday.possible() {
		return syntaxError(specs[dayOfMonth].name, texts[dayOfMonth],
			"no such day ever comes in month %s; a job without a schedule runs only when it is triggered", texts[month])
	}
	return syntaxError(specs[dayOfMonth].name, texts[dayOfMonth],
		"it must match together with day of week %s (a field starts with *), and in month %s that never happens",
		quoted(texts[dayOfWeek]), texts[month])
}

// String is the expression as it was written.
func (e *Expression) String() string { return e.source }

// Canonical is the expression in its simplest form. Expressions with the same canonical form have the same slots.
func (e *Expression) Canonical() string { return e.text }

// SubMinute reports whether the expression can fire more than once in a minute.
func (e *Expression) SubMinute() bool { return e.subMinute }

// SyntaxError says what is wrong with one part of an expression and what would be right. [Parse] returns one, or
// several joined with [errors.Join] when several fields are wrong.
type SyntaxError struct {
	Field  string // "second", "minute", "hour", "day of month", "month", "day of week" or "expression"
	Value  string // the offending text, shortened to 40 bytes and printable ASCII
	Reason string // "70 is outside 0-59"
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf(`%s: "%s": %s`, e.Field, e.Value, e.Reason)
}

func syntaxError(field, value, format string, args ...any) *SyntaxError {
	return &SyntaxError{Field: field, Value: printable(value), Reason: fmt.Sprintf(format, args...)}
}

// printable makes text of unknown origin safe and short enough for a message, a log line and a terminal.
func printable(s string) string {
	const most = 40
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "..."
	}
	quoted := strconv.QuoteToASCII(s)
	return quoted[1:len(quoted)-1] + cut
}

func quoted(s string) string { return `"` + printable(s) + `"` }
