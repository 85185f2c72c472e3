package notice

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"punctual/scheduler/jobspec"
)

const everyField = `{"text": "{{headline}}", "all": ["{{state}}", "{{kind}} {{key}}", "{{tenant}} {{since}} {{cause}} {{events}}",
	"{{jobs}} {{job_count}} {{host}} {{reason}} {{error}} {{runbook}} {{labels}}"], "link": "{{link}}", "number": 1}`

func filled(t *testing.T, m Message, text string) string {
	t.Helper()
	b, err := Write(m, jobspec.Recipient{Format: jobspec.FormatTemplate, Template: text}, true, now)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestATemplateIsFilledIn(t *testing.T) {
	n := routed(event(jobspec.EventDead, 1, failedRun()))
	n.Events[0].Runs[0].Error = "a \"quoted\"\nerror {{job}}"
	m := AboutJob(n)
	var got struct {
		Text, Link string
		All        []string
		Number     int
	}
	if err := json.Unmarshal([]byte(filled(t, m, everyField)), &got); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(got.All, "|")
	if got.Text != "Job daily-invoice-gen has dead runs (tenant billing)" || got.Link != n.Link || got.Number != 1 ||
		!strings.HasPrefix(all, "firing|job "+jobID.String()+"|billing 2026-") ||
		!strings.Contains(all, "daily-invoice-gen 1 billing.internal:443 http_5xx a \"quoted\"\nerror {{job}} "+runbook+
			" cost-center=7, severity=low, team=money") {
		t.Errorf("%+v", got)
	}
	if text := filled(t, m, "[{{state}}] {{headline}}"); text != `"[firing] Job daily-invoice-gen has dead runs (tenant billing)"` {
		t.Errorf("as text: %s", text)
	}
	if text := filled(t, m, `{"ping":true}`); text != `{"ping":true}` {
		t.Errorf("without placeholders: %s", text)
	}
}

func TestATemplateOfThousandsOfJobsIsBounded(t *testing.T) {
	s := Subject{Kind: KindHost, Name: "billing.internal:443", Key: "host", State: StateResolved}
	for i := range 3000 {
		j := routed(event(jobspec.EventRecovered, 1))
		j.Job = fmt.Sprintf("job-%d", i)
		s.Jobs = append(s.Jobs, j)
	}
	text := filled(t, Message{Tenant: "billing", Subjects: []Subject{s, {Kind: KindLate, State: StatePassing}}}, "{{state}} {{kind}} {{jobs}} {{job_count}}")
	if !strings.HasPrefix(text, `"resolved host, late job-0, job-1`) || !strings.Contains(text, " more 3000") || len(text) > 6000 {
		t.Error(text)
	}
}
