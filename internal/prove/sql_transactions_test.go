package prove

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"punctual/internal/pgtest"
)

// The programs of docs/sql-transactions.md make runs. A replica sends what is due within about a second of the commit,
// although nothing tells it.
func TestRunsFromYourOwnTransaction(t *testing.T) {
	t.Parallel()
	const page = "docs/sql-transactions.md"
	dsn, w := pgtest.DSN(t), newWitness(t)
	r := serve(t, dsn)
	create(t, r.API, job(documentedJob, w.URL+"/ok", nil))
	sh := newShell(t)
	conn := connect(t, dsn)
	super := pgtest.Server(t).DSN(conn.Config().Database) // psql has none of the odd defaults of the role of tests
	sh.give(t, map[string]string{"DATABASE_URL": super})
	for _, b := range blocks(t, page) {
		if b.word == "sh" {
			must(t, sh.try(b))
		}
	}
	if n := query[int](t, conn, `SELECT count(*) FROM punctual.dated WHERE key = 'order-43'`); n != 1 {
		t.Errorf("the table's trigger made %d runs", n)
	}

	file, program := filepath.Join(t.TempDir(), "program.go"), filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(file, []byte(codeBlocks(t, filepath.Join(root, page), "go")[0]), 0o600))
	succeed(t, pgtest.Program(t, "https://go.dev/dl", "go"), plain, "build", "-o", program, file)
	as, err := url.Parse(dsn)
	must(t, err)
	as.User = url.UserPassword("shop", "secret")
	succeed(t, program, []string{"DATABASE_URL=" + as.String()})
	committed := time.Now()
	await(t, "the run of the program to be sent", func() bool { return w.Len() > 0 })
	t.Logf("sent %s after the commit", time.Since(committed).Round(time.Millisecond))
	if w.At("/ok")[0].Body != HashBody([]byte(`{"order":44}`)) {
		t.Error("its body is another one")
	}
}
