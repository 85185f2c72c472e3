//prove:other

package prove

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"punctual/internal/docs"
	"punctual/internal/pgtest"
)

// Clients that generators create from the OpenAPI document compile, and call a replica.
func TestGeneratedClientsCallAReplica(t *testing.T) {
	pgtest.Exhaustive(t, "it generates and compiles three clients")
	t.Parallel()
	const page = "docs/reference/README.md"
	commands := docs.Code(t, page, "sh")
	if len(commands) != 1 {
		t.Fatalf("%s has %d blocks of commands", page, len(commands))
	}
	w, r := newWitness(t), serve(t, pgtest.DSN(t))
	from, err := filepath.Abs(filepath.Join(docs.Root, "testdata/generators"))
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(from, "node_modules"), filepath.Join(dir, "node_modules")))
	must(t, os.Mkdir(filepath.Join(dir, "api"), 0o700))
	pgtest.Program(t, "apt-get install nodejs npm", "npx")
	run := func(commands string) string {
		t.Helper()
		return succeed(t, "/bin/sh", plain, "-euc", "cd "+dir+"\n"+commands)
	}
	run("cp " + from + "/*.* .")
	run(strings.ReplaceAll(commands[0], "http://127.0.0.1:8080", r.API.URL) + "npx tsc -p .")
	for _, program := range []string{"node out/openapi-fetch.js", "node out/hey-api.js", "go run ."} {
		if said := run(program + " " + r.API.URL + " " + w.URL + promptPath); !strings.HasSuffix(said, "done\n") {
			t.Errorf("%s says %s", program, said)
		}
	}
}
