package notice

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// templateText bounds each value in a template, in bytes; names of jobs have five times as much.
const templateText = 1000

// template fills a message into a recipient's own template. Of several subjects, the facts are those that all jobs
// share. Text that is not JSON is returned as a string, which is sent as it is.
func template(m Message, text string) (any, error) {
	all := Subject{State: StatePassing}
	var causes, kinds, keys, labels []string
	for _, s := range m.Subjects {
		all.Jobs = append(all.Jobs, s.Jobs...)
		all.More += s.More
		all.Since = earlier(all.Since, s.Since)
		if s.State == StateFiring || s.State == StateResolved && all.State == StatePassing {
			all.State = s.State
		}
		causes = append(causes, oneLine(s.Cause))
		kinds, keys = append(kinds, string(s.Kind)), append(keys, s.Key)
	}
	shares := labelsOf(all)
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		labels = append(labels, name+"="+shares[name])
	}
	list := func(texts []string) string { return strings.Trim(strings.Join(slices.Compact(texts), ", "), ", ") }
	values := map[string]string{
		"headline": Headline(m), "state": string(all.State), "kind": list(kinds), "key": list(keys), "tenant": m.Tenant,
		"cause": list(causes), "events": list(m.Events()), "job_count": strconv.Itoa(len(all.Jobs) + all.More),
		"host":   shared(all, func(n domain.Digest) string { return n.Host }),
		"reason": shared(all, reasonOf), "error": shared(all, errorOf),
		"runbook": shared(all, func(n domain.Digest) string { return n.Runbook }), "labels": list(labels), "link": m.Link,
	}
	for name := range values {
		values[name] = cut(values[name], templateText)
	}
	values["jobs"] = names(all, 5*templateText)
	if all.Since != nil {
		values["since"] = at(*all.Since)
	}
	body, isJSON, err := jobspec.FillTemplate(text, values)
	if isJSON || err != nil {
		return json.RawMessage(body), err
	}
	return string(body), nil
}
