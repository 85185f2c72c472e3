package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"punctual/internal/pgtest"
	"punctual/scheduler/domain"
	"punctual/scheduler/jobspec"
)

// nested is JSON with as many levels, the innermost of which holds a value.
func nested(levels int, value string) string {
	return strings.Repeat(`[`, levels) + value + strings.Repeat(`]`, levels)
}

// long is a JSON string of as many bytes.
func long(bytes int) string { return `"` + strings.Repeat("x", bytes-2) + `"` }

// payloads are what callers pass as data. Each door says the same of each.
func payloads() map[string]string {
	return map[string]string{
		"a number": `1`, "a text": `"a"`, "an empty object": `{}`, "members twice": `{"a": 1, "a": 2}`,
		"as deep as may be":             nested(jobspec.MaxNesting, `1`),
		"too deep":                      nested(jobspec.MaxNesting+1, `1`),
		"too deep by objects":           strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat(`}`, 65),
		"deep, empty":                   nested(jobspec.MaxNesting+1, ``),
		"deep beside many":              `[` + strings.Repeat(`[[1], {}], `, 500) + nested(jobspec.MaxNesting, `1`) + `]`,
		"broad":                         `[` + strings.Repeat(`[{"a": []}], `, 5000) + `1]`,
		"brackets in texts":             `["` + strings.Repeat(`[{\"`, 5000) + `"]`,
		"deeper than any parser of Go":  nested(12_000, `1`),
		"a NUL":                         `{"a": "\u0000"}`,
		"a NUL in a name":               `{"\u0000": 1}`,
		"a backslash and a u":           `"\\u0000 \\ud800"`,
		"a backslash and a NUL":         `"\\\u0000"`,
		"a pair of surrogates":          `"\ud83d\ude00 \uD83D\uDE00"`,
		"a first half":                  `"\ud83d"`,
		"a first half and a letter":     `"\ud83dx"`,
		"a first half and an escape":    `"\ud83d\n"`,
		"a second half":                 `"\ude00"`,
		"halves in the wrong order":     `"\ude00\ud83d"`,
		"two first halves and a second": `"\ud83d\ud83d\ude00"`,
		"halves apart":                  `"\ud83d\\\ude00"`,
		"half a pair in a name":         `{"\udfff": 1}`,
		"braces":                        `"{{ name }} {{run}} {{"`,
		"a large number":                `1e400`,
		"a small number":                `[1e-400, "e"]`,
		"a zero":                        `[0e-400, -0.0, 1e308, 5e-324, "1e999"]`,
		"many digits":                   strings.Repeat(`9`, 400),
		"as long as a result may be":    long(domain.MaxResult),
		"longer than a result":          long(domain.MaxResult + 1),
		"as long as a body may be":      long(jobspec.MaxPayload),
		"longer than a body":            long(jobspec.MaxPayload + 1),
		"letters of several bytes":      `"` + strings.Repeat("é", jobspec.MaxPayload/2) + `"`,
	}
}

// doors are the ways in for a caller's data: a request of the API, and a call of a function of a grant.
var doors = []struct{ name, path, body, call string }{
	{"trigger", "/v1/jobs/n/trigger", `{"body":%s}`, `shop_jobs.trigger('n', $1::text::json)`},
	{
		"dated run", "/v1/jobs/n/trigger", `{"delay":"1h","key":"k","body":%s}`,
		`shop_jobs.run_in('n', '1 h', $1::text::json, expires_after => '1 h')`,
	},
	{
		"batch", "/v1/jobs/n/trigger/batch", `{"items":[{"body":%s}]}`,
		`(SELECT run FROM shop_jobs.run_many(('[{"job": "n", "body": ' || $1::text || '}]')::json))`,
	},
	{"event", "/v1/events/e", `{"body":%s}`, `shop_jobs.emit('e', $1::text::json)`},
	{"result", "/v1/runs/%s/complete", `{"result":%s}`, `shop_jobs.complete(gen_random_uuid(), 1, $1::text::json)`},
}

func TestTheAPIAndSQLRefuseTheSameData(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	app := s.app("shop_jobs")
	for _, door := range doors {
		path := door.path
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, uuid.NewString())
		}
		taken := 0
		for name, data := range payloads() {
			reply := s.do("POST", path, fmt.Sprintf(door.body, data))
			_, err := app.Exec(t.Context(), `SELECT `+door.call, data)
			refused, _ := errors.AsType[*pgconn.PgError](err)
			api := reply.status == 422 || reply.status == 400 || reply.status == 413
			sql := refused != nil && refused.Code == "PU422"
			if refused != nil && !strings.HasPrefix(refused.Code, "PU") {
				t.Errorf("%s, %s: SQL failed: %v", door.name, name, err)
			}
			if api != sql {
				t.Errorf("%s, %s: the API %d %.200s; SQL %v", door.name, name, reply.status, reply.body, err)
			}
			if !api {
				taken++
			}
		}
		if taken < 10 || taken > len(payloads())-10 {
			t.Errorf("%s: took %d of %d", door.name, taken, len(payloads()))
		}
	}
}

// Headers are data as well. That more than these are refused alike is tested in store.
func TestTheAPIAndSQLRefuseTheSameHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	app := s.app("shop_jobs")
	for headers, right := range map[string]bool{
		`{"X-A": "{{ name }} {{run}}"}`: true, `{"X-A": "\u007b"}`: true, `{"X-A": "\ud83d\ude00"}`: true,
		`{"X-A": "\u0000"}`: false, `{"X-A": "\ud83d"}`: false, `{"X-\ud83d": "a"}`: false, `{"\u0000": "a"}`: false,
		`{"X-A": ` + nested(100, "") + `}`: false,
	} {
		reply := s.do("POST", "/v1/jobs/n/trigger", `{"headers":`+headers+`}`)
		_, err := app.Exec(t.Context(), `SELECT shop_jobs.trigger('n', headers => $1::text::json)`, headers)
		refused, _ := errors.AsType[*pgconn.PgError](err)
		if api, sql := reply.status == 202, refused == nil; api != right || sql != right ||
			refused != nil && refused.Code != "PU422" {
			t.Errorf("%s: the API %d %.200s; SQL %v", headers, reply.status, reply.body, err)
		}
	}
}

// Such rows were written when SQL took more than the API, or by hand.
func TestWhatIsNoJSONForGoIsShownAllTheSame(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.create(minimal("n"))
	run := s.do("POST", "/v1/jobs/n/trigger", `{"body":1}`).want(202).fields()["id"].(string)
	dated := s.do("POST", "/v1/jobs/n/trigger", `{"body":1,"delay":"1h","key":"k"}`).want(202).fields()["run"].(string)
	event := s.do("POST", "/v1/events/e", `{"body":1}`).want(202).fields()["id"].(string)
	deep := nested(12_000, "")
	s.exec(`UPDATE punctual.run_data SET body = convert_to($2, 'UTF8'), result = $2::json, progress = $2::json
		WHERE run_id = $1`, run, deep)
	s.exec(`UPDATE punctual.dated SET body = convert_to($2, 'UTF8') WHERE run_id = $1`, dated, deep)
	s.exec(`UPDATE punctual.events SET body = convert_to($2, 'UTF8') WHERE id = $1`, event, deep)
	for _, path := range []string{"/v1/runs/" + run, "/v1/runs/" + dated, "/v1/events/e/" + event} {
		s.do("GET", path, "").want(200).shows("24000 bytes", "cannot be shown")
	}
}

// app connects as a role that may make runs of the tenant default by a schema.
func (s *service) app(schema string) *pgx.Conn {
	s.t.Helper()
	role := "app_" + strings.ReplaceAll(uuid.NewString()[:13], "-", "")
	s.exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'test'`)
	s.do("PUT", "/v1/tenants/default/grants/"+schema, fmt.Sprintf(`{"role":%q}`, role)).want(201)
	dsn, err := url.Parse(s.store.Pool().Config().ConnConfig.ConnString())
	must(s.t, err)
	dsn.User = url.UserPassword(role, "test")
	conn, err := pgtest.Connect(s.t.Context(), dsn.String())
	must(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) })
	return conn
}
