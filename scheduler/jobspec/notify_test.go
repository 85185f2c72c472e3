package jobspec

import (
	"strings"
	"testing"
)

func TestABadTemplateIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	for template, says := range map[string]string{
		`{"text": "{{headline}}"}`: "", "{{headline}} {{{{": "", "[{{state}}] {{jobs}}": "", "no placeholder": "",
		`["{{state}}"]`:              "",
		"":                           "is required with format template",
		"{{headlines}}":              `"{{headlines}}" is not a placeholder; the placeholders are headline, state, `,
		`{"text": "{{ headline }}"}`: "did you mean {{headline}}?",
		"{{since|date}}":             "it has no forms; write {{since}}",
		"{{headline":                 "is not closed by }}",
		`{"text": {{headline}}}`:     "begins like JSON and is none",
		strings.Repeat("x", 10_001):  "10001 bytes; at most 10000",
	} {
		problems := ValidateNotify("notify", []Notify{{
			On: []Event{EventDead}, Format: FormatTemplate, URL: "https://example.com/", Template: template,
		}})
		switch {
		case says == "" && len(problems) > 0:
			t.Errorf("%s: %v", template, problems)
		case says == "":
		case len(problems) != 1 || problems[0].Field != "notify[0].template" || !strings.Contains(problems[0].Message, says):
			t.Errorf("%.40s: %v, want … %s …", template, problems, says)
		}
	}
	problems := ValidateNotify("notify", []Notify{{On: []Event{EventDead}, URL: "https://example.com/", Template: "x"}})
	if len(problems) != 1 || problems[0].Message != "only format template has it; leave it out" {
		t.Errorf("with format json: %v", problems)
	}
}

func TestARunbookIsAURLWithoutUserinfo(t *testing.T) {
	t.Parallel()
	for runbook, fine := range map[string]bool{
		"https://wiki.example.com/invoices#late": true, "": true, "http://wiki/x": false, "https://me:pw@wiki/x": false,
		"wiki": false, "/invoices": false, "javascript:alert(1)": false, "ftp://wiki/x": false, "https://": false,
		"https://wiki/" + strings.Repeat("x", 3000): false,
	} {
		d := Definition{Name: "job", Target: Target{URL: "https://example.com/"}, Runbook: runbook}
		var said []string
		for _, p := range d.Validate() {
			if p.Field == "runbook" {
				said = append(said, p.Message)
			}
		}
		if fine != (len(said) == 0) {
			t.Errorf("%.60s: %q", runbook, said)
		}
	}
}
