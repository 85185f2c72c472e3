package domain

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestWhatResultAnAnswerCarries(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxResult)
	for _, c := range []struct {
		name, body string
		cut        bool
		result     string
		note       string // part of the note
	}{
		{"a member", ` { "a" : 1 , "result" : [ 1 ] } `, false, `[ 1 ]`, ""},
		{"the first of two", `{"result":1,"result":2}`, false, `1`, ""},
		{"none in an inner object", `{"a":{"result":1}}`, false, "", ""},
		{"none by another case", `{"RESULT":1,"x":"\"result\""}`, false, "", ""},
		{"none in a string", `{"x":"a \"result\" of","y":["result"]}`, false, "", ""},
		{"not of a list", `["result"]`, false, "", ""},
		{"null is none", `{"result":null}`, false, "", ""},
		{"half of a surrogate pair", `{"result":"\ud800"}`, false, "", "UTF-8"},
		{"not JSON", `{"result":***}`, false, "", "not JSON"},
		{"rubbish after it", `{"result":1} x`, false, "", "not JSON"},
		{"too long", `{"result":"` + long + `"}`, false, "", "65538 bytes"},
		{"cut after it", `{"result":{"n":1},"more":"xxx`, true, `{"n":1}`, ""},
		{"cut in it", `{"result":"xxx`, true, "", "longer than Punctual reads"},
		{"cut before it", `{"a":"\"result\": xxx`, true, "", ""},
		{"cut in a list", `[{"result":1},`, true, "", ""},
		{
			"brackets in a string do not nest",
			`{"result":"` + strings.Repeat(`[\"`, 70) + `"}`, false, `"` + strings.Repeat(`[\"`, 70) + `"`, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, note := resultOf([]byte(c.body), c.cut)
			if string(result) != c.result || c.note == "" && note != "" || !strings.Contains(note, c.note) {
				t.Errorf("result %.60q, note %q; want %q, %q", result, note, c.result, c.note)
			}
		})
	}
}

func TestTheRequestThatIsShownIsTheOneThatIsSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, target string
		own          string // the run's own body
		body         string // the body that is shown
	}{
		{"JSON", `{"url":"http://x/","body":{"a":"<&>"}}`, "", `{"a":"<&>"}`},
		{"text", `{"url":"http://x/","body":"a <&> \"b\""}`, "", `"a <&> \"b\""`},
		{"text that is JSON", `{"url":"http://x/","body":"{}"}`, "", `"{}"`},
		{"none", `{"url":"http://x/"}`, "", ""},
		{"of the run itself", `{"url":"http://x/","body":"the job's"}`, `{"n":1}`, `{"n":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := Assignment{RunID: uuid.New(), Job: compiled(t, `{"name":"a","target":`+c.target+`}`), Attempt: 1, Fence: 7}
			if c.own != "" {
				a.Body = []byte(c.own)
			}
			s := a.Sent("https://punctual.example", time.Unix(1e9, 0))
			if string(s.Body) != c.body || s.Body != nil && !json.Valid(s.Body) || s.URL != "http://x/" || s.Method != "POST" {
				t.Errorf("shown %s %s %s", s.Method, s.URL, s.Body)
			}
			if s.Headers["Webhook-Timestamp"] != "1000000000" || s.Headers["Webhook-Signature"] != Mask ||
				s.Headers["Punctual-Fencing-Token"] != "7" {
				t.Errorf("headers %v", s.Headers)
			}
		})
	}
}

func TestSilenceThriceIsNoPoison(t *testing.T) {
	t.Parallel()
	a := judged(t, `{"completion":"async"}`)
	if o := JudgeSilent(a, 2, time.Unix(0, 0), time.Unix(400, 0)); o.Verdict != Bury ||
		o.Reason != ReasonSilent || o.End().Attempt != AttemptLost {
		t.Errorf("verdict %d, reason %s, attempt %s", o.Verdict, o.Reason, o.End().Attempt)
	}
}
