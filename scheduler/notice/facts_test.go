package notice

import (
	"fmt"
	"strings"
	"testing"

	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

const runbook = "https://wiki.example.com/invoices"

// routed is the digest of a job that has all that helps to route a notice.
func routed(events ...domain.DigestEvent) domain.Digest {
	n := digest(events...)
	n.Host, n.Runbook = "billing.internal:443", runbook
	n.Labels = map[string]string{"team": "money", "cost-center": "7", "severity": "low"}
	return n
}

func TestEveryFormatTellsHostReasonRunbookAndLabels(t *testing.T) {
	n := routed(event(jobspec.EventDead, 1, failedRun()))
	for _, format := range jobspec.Formats {
		text := string(body(t, format, n))
		for _, want := range []string{"billing.internal:443", "http_5xx", runbook, "money"} {
			if !strings.Contains(strings.ReplaceAll(text, `\\_`, "_"), want) {
				t.Errorf("%s lacks %s: %s", format, want, text)
			}
		}
	}
}

// An alert ends only by the labels with which it began.
func TestAnAlertEndsByTheLabelsWithWhichItBegan(t *testing.T) {
	fired := checkAlerts(t, body(t, jobspec.FormatAlertmanager, routed(event(jobspec.EventDead, 1, failedRun()))))
	ended := checkAlerts(t, body(t, jobspec.FormatAlertmanager, routed(event(jobspec.EventRecovered, 1))))
	a, b := fired["PunctualRunDead"], ended["PunctualRunDead"]
	if fmt.Sprint(a.Labels) != fmt.Sprint(b.Labels) {
		t.Errorf("%v, then %v", a.Labels, b.Labels)
	}
	if a.Labels["team"] != "money" || a.Labels["cost_center"] != "7" || a.Labels["severity"] != "critical" ||
		a.Labels["reason"]+a.Labels["host"] != "" || a.Annotations["runbook_url"] != runbook ||
		a.Annotations["host"] != "billing.internal:443" || a.Annotations["reason"] != "http_5xx" {
		t.Errorf("%+v", a)
	}
}

func TestASubjectHasTheFactsThatItsJobsShare(t *testing.T) {
	a, b := routed(), routed()
	b.Host, b.Labels = "other:443", map[string]string{"team": "money", "cost-center": "8"}
	got := fmt.Sprint(facts(Subject{Cause: "why", Jobs: []domain.Digest{a, b}}))
	if want := fmt.Sprint([]fact{{"cause", "why"}, {"runbook", runbook}, {"team", "money"}}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTeamsAndEmail(t *testing.T) {
	for _, e := range everyEvent {
		checkTeams(t, body(t, jobspec.FormatTeams, digest(e)))
		checkEmail(t, body(t, jobspec.FormatEmail, digest(e)))
	}
	n := digest(everyEvent...)
	text := checkTeams(t, body(t, jobspec.FormatTeams, n))
	if !strings.HasPrefix(text, `Job daily-invoice-gen recovered \(tenant billing\)`) ||
		!strings.Contains(text, "&lt;!channel>") {
		t.Error(text)
	}
	mail := checkEmail(t, body(t, jobspec.FormatEmail, n))
	if mail.Subject != "Job daily-invoice-gen recovered (tenant billing)" || mail.Thread != jobID.String() ||
		!strings.Contains(mail.Text, "3 runs died") {
		t.Errorf("%+v", mail)
	}
}

func TestTeamsAndEmailOfThousandsOfJobsAreBounded(t *testing.T) {
	m := Message{Tenant: "billing", Link: digest().Link}
	for _, kind := range []Kind{KindHost, KindLate, KindMissed} {
		s := Subject{Kind: kind, Name: "billing.internal:443", Key: string(kind), State: StateFiring, Since: &began}
		for i := range 3000 {
			j := digest(event(jobspec.EventDead, 1, failedRun()))
			j.Job = fmt.Sprintf("%s-%d", strings.Repeat("<x>", 30), i)
			s.Jobs = append(s.Jobs, j)
		}
		m.Subjects = append(m.Subjects, s)
	}
	for _, format := range []jobspec.Format{jobspec.FormatTeams, jobspec.FormatEmail} {
		b, err := Write(m, jobspec.Recipient{Format: format}, true, now)
		if err != nil {
			t.Fatal(err)
		}
		if format == jobspec.FormatTeams {
			if text := checkTeams(t, b); !strings.Contains(text, "more") {
				t.Errorf("it does not say that there are more jobs: %s", text)
			}
		} else if mail := checkEmail(t, b); len(mail.Text) > 100<<10 {
			t.Errorf("%d bytes", len(mail.Text))
		}
	}
}

// However many jobs there are, a message keeps within what its recipient takes, and says how many it does not name.
func TestMessagesAboutTenThousandJobsSayWhatTheyLeaveOut(t *testing.T) {
	s := Subject{Kind: KindHost, Name: "billing.internal:443", Key: "host", State: StateFiring, Since: &began}
	for i := range 10_000 {
		j := routed(event(jobspec.EventDead, 1))
		j.Job = fmt.Sprintf("%s-%d", strings.Repeat("x", 20), i)
		s.Jobs = append(s.Jobs, j)
	}
	s.Limit(9000)
	m := Message{Tenant: "billing", Link: "https://punctual.internal/notices/1", Subjects: []Subject{s}}
	for _, format := range jobspec.Formats {
		b, err := Write(m, jobspec.Recipient{Format: format, Template: everyField}, true, now)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if !strings.Contains(text, "10000 jobs affected") || !strings.Contains(text, m.Link) {
			t.Errorf("%s does not say how many jobs there are, or where to find all: %.300s", format, text)
		}
		most := map[jobspec.Format]int{jobspec.FormatPagerDuty: 512 << 10, jobspec.FormatTeams: 28_000}[format]
		if most > 0 && len(b) > most {
			t.Errorf("%s: %d bytes", format, len(b))
		}
		left := map[jobspec.Format]string{jobspec.FormatPagerDuty: `"more":9800`, jobspec.FormatJSON: `"more":1000`}[format]
		if left == "" {
			left = " more"
		}
		if !strings.Contains(text, left) {
			t.Errorf("%s does not say what it leaves out", format)
		}
		if format == jobspec.FormatSlack {
			checkSlack(t, b)
		}
	}
}
