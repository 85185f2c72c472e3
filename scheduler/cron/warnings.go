package cron

import (
	"fmt"
	"regexp"
	"strings"
)

// numericWeekday matches a number that is a day of the week, and neither a step nor the week of a month.
var numericWeekday = regexp.MustCompile(`(^|[,-])[0-7]`)

// Warnings returns what a valid expression means here and may mean otherwise in the system that it comes from; none for
// most. zone is the name of its zone; empty if it was given none. The error is that of [Parse].
func Warnings(expr, zone string) (warnings []string, err error) {
	p, err := parse(expr)
	if err != nil {
		return nil, err
	}
	f, texts := &p.fields, p.texts
	dom, dow := &f[dayOfMonth], &f[dayOfWeek]
	likeQuartz := len(strings.Fields(expr)) == 6 || strings.Contains(expr, "?")
	if likeQuartz && !f.full(dayOfWeek) && numericWeekday.MatchString(texts[dayOfWeek]) {
		warnings = append(warnings, fmt.Sprintf("day of week %s is %s, as 1 is Monday; in Quartz and EventBridge 1 is Sunday",
			quoted(texts[dayOfWeek]), strings.TrimPrefix(weekdayWords(dow), "on ")))
		if isNumber(texts[dayOfWeek]) && secondsLast(expr, texts) {
			warnings = append(warnings, "the first of six fields is the second; in croniter the last one is")
		}
	}
	if !f.full(dayOfMonth) && !f.full(dayOfWeek) {
		if dom.star || dow.star {
			warnings = append(warnings, "day of month and day of week must both match, as one of them starts with *; "+
				"in Kubernetes and some other systems either may match")
		} else {
			warnings = append(warnings, "day of month and day of week are both restricted, so either may match; "+
				"in Spring and some other systems both must match")
		}
	}
	switch {
	case zone != "":
	case !p.interval:
		warnings = append(warnings, "its hours are in UTC, as the schedule has no timezone")
	case !f.full(dayOfMonth) || !f.full(dayOfWeek) || !f.full(month):
		warnings = append(warnings, "its days are in UTC, as the schedule has no timezone")
	}
	return warnings, nil
}
