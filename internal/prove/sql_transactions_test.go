//prove:other

package prove

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
	"punctual/internal/process"
)

const sqlPage = "docs/sql-transactions.md"

// The programs of docs/sql-transactions.md write an order and its reminder in one transaction.
func TestRunsFromYourOwnTransaction(t *testing.T) {
	t.Parallel()
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	create(t, r.API, job(documentedJob, w.URL+"/ok", nil))
	sh := newShell(t)
	conn := connect(t, dsn)
	super := pgtest.Server(t).DSN(conn.Config().Database) // psql has none of the odd defaults of the role of tests
	sh.give(t, map[string]string{"DATABASE_URL": super})
	for _, b := range docs.Blocks(t, sqlPage) {
		if b.Word == "sh" {
			must(t, sh.try(b))
		}
	}
	if n := query[int](t, conn, `SELECT count(*) FROM punctual.dated WHERE key = 'order-43'`); n != 1 {
		t.Errorf("the table's trigger made %d runs", n)
	}

	as, err := url.Parse(pgtest.TCP(t, pgtest.Server(t), dsn))
	must(t, err)
	as.User = url.UserPassword("shop", "secret")
	modules, err := filepath.Abs(filepath.Join(docs.Root, "testdata/node-postgres/node_modules"))
	must(t, err)
	env := []string{"DATABASE_URL=" + as.String(), "NODE_PATH=" + modules}
	owner := connect(t, super)
	execute(t, owner, `DROP TRIGGER remind ON public.orders`)
	for language, order := range map[string]int{"go": 44, "python": 45, "js": 46} {
		found := docs.Code(t, sqlPage, language)
		if len(found) != 1 {
			t.Fatalf("the page has %d programs in %s", len(found), language)
		}
		command := runnable(t, language, found[0])
		wrote := func() (orders, reminders int) {
			return query[int](t, owner, `SELECT count(*) FROM public.orders WHERE id = $1`, order),
				query[int](t, owner, `
					SELECT count(*) FROM punctual.dated
					WHERE key = $1 AND convert_from(body, 'UTF8')::jsonb = $2::jsonb
					    AND due_at BETWEEN now() + interval '50 min' AND now() + interval '1 hour'`,
					fmt.Sprint("reminder-", order), fmt.Sprintf(`{"order": %d}`, order))
		}
		execute(t, owner, `REVOKE USAGE ON SCHEMA shop_jobs FROM shop`)
		p, err := process.Launch(command[0], env, command[1:]...)
		must(t, err)
		watch(t, p)
		if code := ended(t, "the program in "+language, p); code == 0 || !strings.Contains(p.Output(), "permission denied") {
			t.Errorf("%s: exit code %d without the right:\n%s", language, code, p.Output())
		}
		if orders, reminders := wrote(); orders+reminders != 0 {
			t.Errorf("%s: %d orders and %d reminders without the right: is it one transaction?", language, orders, reminders)
		}
		execute(t, owner, `GRANT USAGE ON SCHEMA shop_jobs TO shop`)
		succeed(t, command[0], env, command[1:]...)
		if orders, reminders := wrote(); orders != 1 || reminders != 1 {
			t.Errorf("%s: %d orders and %d reminders, want one of each", language, orders, reminders)
		}
	}
}
