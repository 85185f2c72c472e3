package prove

import (
	"strconv"
	"strings"
	"time"

	"punctual/scheduler/jobspec"
)

// plainCron is a cron expression of numbers, ranges, lists, steps and stars in UTC. It is simple on purpose: it
// compares each instant with sets of numbers.
type plainCron struct {
	step                                      time.Duration // second or minute: the distance between candidates
	seconds, minutes, hours, days, months, on map[int]bool
	anyDay, anyWeekday                        bool
}

// parsePlainCron parses the expression of a schedule. ok is false if the expression is of another kind.
func parsePlainCron(s jobspec.Schedule) (c plainCron, ok bool) {
	fields := strings.Fields(s.Cron)
	if s.Timezone != "" && s.Timezone != "UTC" || len(fields) < 5 || len(fields) > 6 {
		return c, false
	}
	c.step = time.Second
	if len(fields) == 5 {
		fields, c.step = append([]string{"0"}, fields...), time.Minute
	}
	limits := [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	for i, set := range []*map[int]bool{&c.seconds, &c.minutes, &c.hours, &c.days, &c.months, &c.on} {
		if *set, ok = numbers(fields[i], limits[i][0], limits[i][1]); !ok {
			return c, false
		}
	}
	c.anyDay, c.anyWeekday = strings.HasPrefix(fields[3], "*"), strings.HasPrefix(fields[5], "*")
	return c, true
}

// numbers parses one field.
func numbers(field string, lowest, highest int) (set map[int]bool, ok bool) {
	set = map[int]bool{}
	for part := range strings.SplitSeq(field, ",") {
		part, every, stepped := strings.Cut(part, "/")
		by := 1
		if stepped {
			var err error
			if by, err = strconv.Atoi(every); err != nil || by < 1 {
				return nil, false
			}
		}
		first, last := lowest, highest
		if part != "*" {
			from, to, isRange := strings.Cut(part, "-")
			var err error
			if first, err = strconv.Atoi(from); err != nil {
				return nil, false
			}
			switch {
			case isRange:
				if last, err = strconv.Atoi(to); err != nil {
					return nil, false
				}
			case !stepped:
				last = first
			}
		}
		if first < lowest || last > highest || first > last {
			return nil, false
		}
		for n := first; n <= last; n += by {
			set[n] = true
		}
	}
	return set, true
}

// matches reports whether t, which must be in UTC, is a slot.
func (c plainCron) matches(t time.Time) bool {
	day, weekday := c.days[t.Day()], c.on[int(t.Weekday())]
	onDay := day && weekday
	if !c.anyDay && !c.anyWeekday {
		onDay = day || weekday
	}
	return onDay && c.seconds[t.Second()] && c.minutes[t.Minute()] && c.hours[t.Hour()] && c.months[int(t.Month())]
}
